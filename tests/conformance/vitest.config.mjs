// One file, one worker: the suite measures waits, and the server under test shares the machine.
import { fileURLToPath } from "node:url"
import { defineConfig } from "vitest/config"

export default defineConfig({
  root: fileURLToPath(new URL(".", import.meta.url)),
  cacheDir: "node_modules/.vite",
  test: {
    include: ["official.test.mjs"],
    testTimeout: 30_000,
    hookTimeout: 30_000,
    maxWorkers: 1,
    watch: false,
  },
})
