"""No process outlives the main one, however that one dies.

Every forked child asks the kernel to be killed with its parent, before it runs anything
else. A parent that died in between is noticed by comparing parent pids. A child also starts
with the default reaction to stop signals instead of its parent's handlers, so that a stop
during its start ends it.
"""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_NAME_BYTES_MAX = 15

_libc = ctypes.CDLL(None)
_forking_pid = 0
_registered = False


def die_with_parent() -> None:
    """From now on, every child this process forks dies with the process that forked it."""
    global _registered
    if not _registered:
        _registered = True
        os.register_at_fork(before=_remember_parent, after_in_child=_bind_to_parent)


def name_process(name: str) -> None:
    """Set the name that `ps`, `top` and /proc show for this process."""
    _libc.prctl(_PR_SET_NAME, name.encode()[:_NAME_BYTES_MAX], 0, 0, 0)


def _remember_parent() -> None:
    global _forking_pid
    _forking_pid = os.getpid()


def _bind_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != _forking_pid:
        os._exit(1)
