"""A forked child dies with its parent, also when the parent is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.harness.processes import is_alive
from tests.harness.waiting import until

PARENT = """
import multiprocessing, signal, sys, threading
from topicsd.serve import orphans
orphans.die_with_parent()
orphans.die_with_parent()
def child():
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    orphans.name_process("a-name-that-is-too-long")
    print(multiprocessing.current_process().pid, flush=True)
    threading.Event().wait()
signal.signal(signal.SIGTERM, lambda *_: None)
process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join()
"""


def test_child_is_gone_when_its_parent_was_killed() -> None:
    """SIGKILL of the parent takes the child with it; the child's name is its own."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert Path(f"/proc/{child}/comm").read_text() == "a-name-that-is-\n"
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    until(lambda: not is_alive(child), 1)
