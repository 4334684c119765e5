"""The yardstick: what a stock Sanic handler costs for the same body on the same machine.

One worker, Sanic's own protocol, no access log. The handler does the least that could be
called storing a write: decode the envelope with msgspec (payloads stay raw, the cheapest
way), append the body to a file, answer a small JSON object.

Run as `python -m loadtest.bench.baseline PORT_FILE STORE_FILE`.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import msgspec
from sanic import HTTPResponse, Request, Sanic
from sanic.response import json

PATH = "/append"


class Record(msgspec.Struct):
    data: msgspec.Raw
    tag: str | None = None
    node: str | None = None
    meta: msgspec.Raw | None = None


class Envelope(msgspec.Struct):
    records: list[Record]


def create_app(store: int) -> Sanic:
    """An application that appends every body to the descriptor `store`."""
    app = Sanic("baseline")
    decode = msgspec.json.Decoder(Envelope).decode

    @app.post(PATH)
    async def append(request: Request) -> HTTPResponse:
        envelope = decode(request.body)
        os.write(store, request.body)
        return json({"count": len(envelope.records)})

    return app


def main() -> None:
    port_file, store_file = Path(sys.argv[1]), Path(sys.argv[2])
    store = os.open(store_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    host, port = listener.getsockname()
    # Connections queue in the listener until the loop runs, so the port may be told now.
    scratch = port_file.with_suffix(".new")
    scratch.write_text(f"{host}:{port}")
    scratch.rename(port_file)
    app = create_app(store)
    app.run(sock=listener, single_process=True, access_log=False, motd=False)


if __name__ == "__main__":
    main()
