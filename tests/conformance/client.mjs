// The npm client lives the whole life of one stream and prints what it saw, as JSON.
// Usage: node client.mjs URL json|bytes long-poll|sse
import { DurableStream, IdempotentProducer } from "@durable-streams/client"

const [url, kind, live] = process.argv.slice(2)
const isJson = kind === "json"
const contentType = isJson ? "application/json" : "application/octet-stream"
const seen = {}

// Bytes that are neither text nor whole groups of base64.
const encode = (n) =>
  isJson ? JSON.stringify({ n, text: "ü\n\n" }) : new Uint8Array([n, 0, 255, 10, 13])
const hex = (bytes) => Buffer.from(bytes).toString("hex")
const read = async (handle, options) => {
  const response = await handle.stream(options)
  return isJson ? await response.json() : hex(await response.body())
}

const handle = await DurableStream.create({ url, contentType })
const { exists, contentType: type, streamClosed } = await handle.head()
seen.created = { exists, contentType: type, streamClosed }

const errors = []
const options = { autoClaim: false, lingerMs: 0, onError: (error) => errors.push(String(error)) }
const producer = new IdempotentProducer(handle, "writer", options)
const offsets = []
for (const n of [1, 2]) {
  producer.append(encode(n))
  await producer.flush()
  offsets.push(producer.lastSuccessfulOffset)
}
seen.produced = { epoch: producer.epoch, nextSeq: producer.nextSeq }

// A second producer of the same name and epoch repeats the first request: a retry, not new data.
const retry = new IdempotentProducer(handle, "writer", options)
retry.append(encode(1))
await retry.flush()
await retry.detach()
seen.read = await read(handle, { live: false })
seen.readAfterFirst = await read(handle, { live: false, offset: offsets[0] })
seen.readAtTail = await read(handle, { live: false, offset: offsets[1] })

// The tail: the reader stands at the end, then two appends, then the end of the stream.
const response = await handle.stream({ offset: offsets[1], live })
const tail = isJson ? response.jsonStream() : response.bodyStream()
const reader = tail.getReader()
const tailed = []
const take = async () => {
  // A response without data may arrive as an empty chunk.
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return false
    if (isJson || value.length > 0) return tailed.push(isJson ? value : hex(value))
  }
}
for (const n of [3, 4]) {
  const next = take()
  producer.append(encode(n))
  await producer.flush()
  await next
}
const end = take()
const closed = await producer.close(encode(5))
await end
seen.ended = (await take()) === false
seen.tailed = tailed
const atEnd = (told) => told.streamClosed && told.offset === closed.finalOffset
seen.readerKnowsTheEnd = atEnd(response)
seen.headKnowsTheEnd = atEnd(await handle.head())
seen.appendAfterClose = await handle.append(encode(6)).then(
  () => "accepted",
  (error) => [error.status, error.headers["stream-closed"]],
)
seen.readAtLast = await read(handle, { live: false })

await handle.delete()
seen.afterDelete = await handle.head()
seen.errors = errors
console.log(JSON.stringify(seen))
