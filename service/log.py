"""Logging on standard error, as whoever reads it wants it.

In the journal of systemd each line has its priority in front (``sd-daemon(3)``) and no time,
which the journal has itself; a message of several lines stays one that can be read. Elsewhere a
message is one line with time and level.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_ERROR = 3
_PRIORITIES = {
    logging.CRITICAL: 2,
    logging.ERROR: _ERROR,
    logging.WARNING: 4,
    logging.INFO: 6,
    logging.DEBUG: 7,
}


class _OneLine(logging.Formatter):
    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def format(self, record: logging.LogRecord) -> str:
        return super().format(record).replace("\n", "\\n")


class _ForJournal(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return _prefixed(super().format(record), _PRIORITIES.get(record.levelno, _ERROR))


def _prefixed(text: str, priority: int) -> str:
    """``text`` with the priority in front of every line that the journal will see in it."""
    return "\n".join(f"<{priority}>{line}" for line in text.split("\n"))


def is_journal(descriptor: int, environment: Mapping[str, str]) -> bool:
    """Whether what is written to ``descriptor`` goes to the journal.

    ``JOURNAL_STREAM`` names the file that systemd connected (``systemd.exec(5)``); who redirects
    standard error leaves the variable as it is.
    """
    try:
        status = os.fstat(descriptor)
    except OSError:
        return False
    return environment.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def last_words(text: str) -> str:
    """``text`` about why the program ends, as it is to be written to standard error."""
    return _prefixed(text, _ERROR) if is_journal(_standard_error(), os.environ) else text


def set_up_logging() -> None:
    """Send everything from INFO on to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    if is_journal(_standard_error(), os.environ):
        handler.setFormatter(_ForJournal("%(name)s: %(message)s"))
    else:
        handler.setFormatter(_OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    # One line per request says nothing that the metrics do not.
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)


def _standard_error() -> int:
    return sys.__stderr__.fileno() if sys.__stderr__ is not None else -1
