"""An engine that makes writes of one record each and then dies of SIGKILL.

Run as `python -m loadtest.bench.crash HOME RECORDS [SETTING=NUMBER ...]`.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import msgspec

from loadtest.bench.driver import open_driver, settings_for

TOPIC = "crash"


def main() -> None:
    home, records = Path(sys.argv[1]), int(sys.argv[2])
    given = {name: int(value) for name, _, value in (word.partition("=") for word in sys.argv[3:])}
    settings = msgspec.structs.replace(settings_for(home), **given)
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    with open_driver(settings) as driver:
        driver.load_singly(TOPIC, records)
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
