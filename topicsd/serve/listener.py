"""The HTTP listening socket, bound by the main process before anything is forked."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

from topicsd.serve.refusals import StartRefused
from topicsd.storage.fs import Files

BACKLOG = 2048


def bind(host: str, port: int) -> socket.socket:
    """Bind and listen, or refuse in one line."""
    try:
        family, kind, protocol, _, address = _resolve(host, port)
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise StartRefused(_explain(host, port, error)) from None
    listener.setblocking(False)
    return listener


def location(listener: socket.socket) -> str:
    """`host:port` as a client would write it; an IPv6 host in brackets."""
    host, port, *_ = listener.getsockname()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_port_file(path: Path) -> None:
    """Refuse a port file that could not be written later, when processes are running."""
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise StartRefused(f"cannot write TOPICS_PORT_FILE={path}: no writable directory for it")


def write_port_file(files: Files, path: Path, listener: socket.socket) -> None:
    """Tell automation where the server listens; readers see all of it or nothing."""
    try:
        files.write_whole(path, f"{location(listener)}\n".encode())
    except OSError as error:
        raise StartRefused(f"cannot write TOPICS_PORT_FILE={path}: {error.strerror}") from None


def _resolve(host: str, port: int) -> tuple:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]


def _explain(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"cannot listen on {host}:{port}: the address is in use (TOPICS_PORT, --port)"
    return f"cannot listen on {host}:{port}: {error.strerror or error}"
