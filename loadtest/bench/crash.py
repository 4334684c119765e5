"""An engine that fills its WAL with writes of one record and then dies of SIGKILL.

Run as `python -m loadtest.bench.crash HOME RECORDS`.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import msgspec

from loadtest.bench.driver import open_driver, settings_for

TOPIC = "crash"
# Far more than is written: no checkpoint may shorten the replay.
NO_CHECKPOINTS = {"checkpoint_bytes": 2**40, "checkpoint_interval_ms": 86_400_000}


def main() -> None:
    home, records = Path(sys.argv[1]), int(sys.argv[2])
    settings = msgspec.structs.replace(settings_for(home), **NO_CHECKPOINTS)
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    with open_driver(settings) as driver:
        driver.load_singly(TOPIC, records)
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
