// The official suite, pointed at the server in CONFORMANCE_URL. vitest itself sets BASE_URL, so
// that name would not arrive.
import { runConformanceTests } from "@durable-streams/server-conformance-tests"

const { CONFORMANCE_URL, CONFORMANCE_LONG_POLL_MS = "500" } = process.env
if (!CONFORMANCE_URL) throw new Error("CONFORMANCE_URL names the server to test, without a path")

runConformanceTests({
  baseUrl: CONFORMANCE_URL.replace(/\/+$/, ""),
  longPollTimeoutMs: Number(CONFORMANCE_LONG_POLL_MS),
  subscriptions: true,
})
