"""The yardstick of fan-out: a stock Sanic application that sends prepared bytes to everybody.

Two workers share one listening socket, as Sanic's own manager would have them. A stream is a
stock handler: a queue, and `await response.send(...)` for what comes out of it. A broadcast is
a POST that names a number; whichever worker gets it tells all workers by datagram, and each
puts the same frame, made once, into the queues of its streams. Nothing is stored.

Run as `python -m loadtest.bench.broadcast PORT_FILE`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

from sanic import HTTPResponse, Request, Sanic
from sanic.response import empty

from loadtest.bench.payload import payload

STREAM_PATH = "/stream"
BROADCAST_PATH = "/broadcast/"
OPENED = b"retry: 2000\n\n"
WORKERS = 2
# Streams are idle while the other side of a comparison is measured.
PATIENCE_S = 3600
DATAGRAM_BYTES = 32

_ID = b"eyJmYW5vdXQiOjEyMzQ1fQ"
_FRAME = (
    b'id: %b\nevent: record\ndata: {"topic":"fanout","records":[{"$seq":%d,"$ts":1748467200111,'
    b'"data":%b}],"from_seq":%d,"to_seq":%d,"head_seq":%d}\n\n'
)


def frame(number: int) -> bytes:
    """What a watch of one topic sends for its record `number`, to the byte."""
    return _FRAME % (_ID, number, payload(number % 16), number - 1, number, number)


def create_app(inbox: socket.socket, colleagues: list[str]) -> Sanic:
    """One worker: it hears broadcasts from `inbox` and sends them to all `colleagues`."""
    app = Sanic("broadcast")
    app.config.RESPONSE_TIMEOUT = app.config.KEEP_ALIVE_TIMEOUT = PATIENCE_S
    queues: set[asyncio.Queue[bytes]] = set()

    def hear() -> None:
        # Writes are numbered from 0, records from 1.
        prepared = frame(int(inbox.recv(DATAGRAM_BYTES)) + 1)
        for queue in queues:
            queue.put_nowait(prepared)

    @app.after_server_start
    async def listen(_: Sanic) -> None:
        asyncio.get_running_loop().add_reader(inbox.fileno(), hear)

    @app.get(STREAM_PATH)
    async def stream(request: Request) -> None:
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        queues.add(queue)
        try:
            response = await request.respond(content_type="text/event-stream")
            await response.send(OPENED)
            while True:
                await response.send(await queue.get())
        finally:
            queues.discard(queue)

    @app.post(BROADCAST_PATH + "<number:int>")
    async def broadcast(_: Request, number: int) -> HTTPResponse:
        for colleague in colleagues:
            inbox.sendto(b"%d" % number, colleague)
        return empty(200, {"content-length": "0"})

    return app


def main() -> None:
    port_file = Path(sys.argv[1])
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(4096)
    addresses = [str(port_file.with_name(f"worker-{number}")) for number in range(WORKERS)]
    inboxes = [socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in addresses]
    for inbox, address in zip(inboxes, addresses, strict=True):
        inbox.bind(address)
    # Connections and datagrams queue until the loops run, so the port may be told now.
    scratch = port_file.with_suffix(".new")
    scratch.write_text("{}:{}".format(*listener.getsockname()))
    scratch.rename(port_file)
    number = 0 if os.fork() else 1
    app = create_app(inboxes[number], addresses)
    app.run(sock=listener, single_process=True, access_log=False, motd=False)


if __name__ == "__main__":
    main()
