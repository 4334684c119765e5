"""Looking at processes from outside, through /proc: children, commands, owners of sockets."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
_SOCKET_LINK = re.compile(r"socket:\[(\d+)\]")


def is_alive(pid: int) -> bool:
    """True while `pid` runs; a zombie that nobody reaped yet counts as gone."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def children_of(pid: int) -> list[int]:
    """Every descendant of `pid`, parents before their children."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        parent = waiting.pop(0)
        direct = _direct_children(parent)
        found.extend(direct)
        waiting.extend(direct)
    return found


def _direct_children(pid: int) -> list[int]:
    children: list[int] = []
    for task in _listing(_PROC / str(pid) / "task"):
        try:
            text = (task / "children").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        children.extend(int(child) for child in text.split())
    return sorted(children)


def private_bytes(pid: int) -> int:
    """Resident memory that belongs to `pid` alone; mapped files do not count. 0 when gone."""
    try:
        status = (_PROC / str(pid) / "status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    match = re.search(r"^RssAnon:\s+(\d+) kB", status, re.MULTILINE)
    return int(match.group(1)) * 1024 if match else 0


def socket_inodes(pid: int) -> set[int]:
    """The inodes of all sockets `pid` holds open."""
    inodes: set[int] = set()
    for link in _listing(_PROC / str(pid) / "fd"):
        try:
            match = _SOCKET_LINK.match(os.readlink(link))
        except (FileNotFoundError, ProcessLookupError):
            continue
        if match:
            inodes.add(int(match.group(1)))
    return inodes


def _listing(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return []


def accepted_inode(connection: socket.socket) -> int | None:
    """The inode of the server's end of `connection`, None until it was accepted."""
    ports = connection.getpeername()[1], connection.getsockname()[1]
    return next((inode for *ends, inode in _connections() if (*ends,) == ports and inode), None)


def accepted_inodes(clients: list[int], server_port: int) -> set[int]:
    """The inodes of the server's ends of all connections that processes `clients` have to it."""
    ours = set().union(*map(socket_inodes, clients))
    open_connections = list(_connections())
    client_ports = {
        local
        for local, remote, inode in open_connections
        if remote == server_port and inode in ours
    }
    return {
        inode
        for local, remote, inode in open_connections
        if local == server_port and remote in client_ports and inode
    }


def _connections() -> Iterator[tuple[int, int, int]]:
    """Local port, remote port and inode of every TCP socket (0 when nobody holds it)."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        yield _port(fields[1]), _port(fields[2]), int(fields[9])


def _port(address: str) -> int:
    return int(address.partition(":")[2], 16)
