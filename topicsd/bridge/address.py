"""Where the engine listens: a Unix socket only the server's own user can open.

Normally `<data>/run/engine.sock`. A socket address holds 107 bytes, so a data directory
with a longer path gets a private directory under /tmp named by a hash of that path; the
directory must be ours and closed to others, because anybody may create names in /tmp.
"""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import xxhash

from topicsd.storage.fs import Files

ADDRESS_BYTES_MAX = 107
SOCKET_MODE = 0o600
BACKLOG = 512
_SHORT_PLACE = Path("/tmp")
_SHORT_PREFIX = "topicsd-"


class UnsafeSocketDirectory(Exception):
    """The directory for the engine's socket belongs to, or is open to, somebody else."""


def socket_path(data_dir: Path) -> Path:
    """The address of the engine of `data_dir`; every process derives the same one."""
    place = data_dir.resolve()
    path = place / "run" / "engine.sock"
    if len(os.fsencode(path)) <= ADDRESS_BYTES_MAX:
        return path
    digest = xxhash.xxh3_128_hexdigest(os.fsencode(place))
    return _SHORT_PLACE / f"{_SHORT_PREFIX}{os.geteuid()}-{digest}" / "engine.sock"


def listen(files: Files, path: Path) -> socket.socket:
    """Listen at `path`, replacing the socket that a dead engine left behind."""
    files.make_directory(path.parent)
    if path.parent.name.startswith(_SHORT_PREFIX):
        _check_private(path.parent)
    files.remove(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.setblocking(False)
    listener.bind(str(path))
    # Nobody can connect before `listen`, so there is no moment with a wider mode.
    os.chmod(path, SOCKET_MODE)
    listener.listen(BACKLOG)
    return listener


def _check_private(directory: Path) -> None:
    status = os.lstat(directory)
    ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    if not ours or stat.S_IMODE(status.st_mode) & 0o077:
        raise UnsafeSocketDirectory(f"{directory} is not a private directory of this user")
