"""``vigil`` that logs ``TALKATIVE_LINES`` lines as soon as its log is set up.

Libraries print beside the log: some lines go straight to standard error and output.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading

from tests.parts.deadlines import wait_until
from vigil.main import main

_STEP_SECONDS = 0.01
LINE = "line %06d of a part that logs a lot, as one does whose device fails again and again"
PRINTED = "printed by a library"


def _talk() -> None:
    wait_until(lambda: logging.getLogger().handlers, "logging is set up", 60)
    for stream in (sys.stderr, sys.stdout):
        stream.write(f"{PRINTED}\n")
    with contextlib.suppress(BlockingIOError):
        os.write(2, b"what a library in C writes is lost\n")
    log = logging.getLogger("talkative")
    for number in range(int(os.environ["TALKATIVE_LINES"])):
        log.warning(LINE, number)


if __name__ == "__main__":
    threading.Thread(target=_talk, daemon=True).start()
    main()
