"""Looking at processes from outside, through /proc: children, commands, owners of sockets."""

from __future__ import annotations

import os
import re
import socket
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
    client_port = connection.getsockname()[1]
    server_port = connection.getpeername()[1]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        local, remote, inode = fields[1], fields[2], int(fields[9])
        if _port(local) == server_port and _port(remote) == client_port and inode:
            return inode
    return None


def _port(address: str) -> int:
    return int(address.partition(":")[2], 16)
