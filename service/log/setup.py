"""Logging on standard error, in the form that its reader needs.

A message may contain texts of the kernel, a BMC or another program. Characters that no terminal
should get are ``?``, as in the output of the verbs.

In the journal of systemd each line has its priority in front (``sd-daemon(3)``) and no time, which
the journal has itself; a message of several lines stays one that can be read. Elsewhere a message
is one line with time and level. In the format ``json`` each message is an object on one line, also
in the journal. Logging does not wait for the reader (``LogWriter``).
"""

from __future__ import annotations

import json
import logging
import os
import time
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from contract.errors import printable
from contract.plural import plural
from service.log.standard_streams import STANDARD_ERROR, never_wait
from service.log.writer import LogWriter

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


class LogFormat(StrEnum):
    """The form of the log: lines for people, or JSON for programs."""

    TEXT = "text"
    JSON = "json"


FAULT_FIELDS = ("chip", "code", "fault_level")
"""Attributes of a record about one fault, given as ``extra``: the format ``json`` shows them."""


class _OneLine(logging.Formatter):
    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def format(self, record: logging.LogRecord) -> str:
        return "\\n".join(map(printable, super().format(record).split("\n")))


class _ForJournal(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return _prefixed(super().format(record), _PRIORITIES.get(record.levelno, _ERROR))


class _Json(logging.Formatter):
    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "node": self._node,
        }
        for name in FAULT_FIELDS:
            if (value := getattr(record, name, None)) is not None:
                line[name] = value
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        # Escaped: no byte that a text holds can end the line or change a terminal.
        return json.dumps(line)


def _prefixed(text: str, priority: int) -> str:
    """Return ``text`` with the priority in front of every line that the journal will see in it."""
    return "\n".join(f"<{priority}>{printable(line)}" for line in text.split("\n"))


def is_journal(descriptor: int, environment: Mapping[str, str]) -> bool:
    """Return whether what is written to ``descriptor`` goes to the journal.

    ``JOURNAL_STREAM`` names the file that systemd connected (``systemd.exec(5)``). It stays as it
    is where standard error is redirected.
    """
    try:
        status = os.fstat(descriptor)
    except OSError:
        return False
    return environment.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def last_words(text: str) -> str:
    """Return ``text`` about why the program ends, as it is written to standard error."""
    return _prefixed(text, _ERROR) if is_journal(STANDARD_ERROR, os.environ) else text


def set_up_logging(log_format: LogFormat = LogFormat.TEXT, node: str = "") -> None:
    """Send everything from INFO on to standard error.

    ``node`` is the name of this node in the format ``json``; by default that of the host.
    """
    is_json = log_format is LogFormat.JSON
    _handler.setFormatter(_Json(node or os.uname().nodename) if is_json else _text_formatter())
    logging.basicConfig(level=logging.INFO, handlers=[_handler], force=True)
    # One line per request has nothing that the metrics do not have.
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)


def protect_standard_streams() -> None:
    """Let no thread of this process wait for the reader of standard output and error."""
    never_wait(_writer)


def flush_log() -> None:
    """Wait until the log is written, but at most 1 s in the life of the process."""
    _writer.flush()


def dropped_lines() -> int:
    """Return how many lines of the log were dropped since the start: its reader was too slow."""
    return _writer.dropped


class _LineHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        # A message whose arguments do not fit must not end the task that logs it.
        try:
            text = self.format(record)
        except Exception:
            self.handleError(record)
        else:
            # Surrogates of undecodable names are escaped: a log line must never fail to encode.
            _writer.put(f"{text}\n".encode(errors="backslashreplace"))


def _text_formatter() -> logging.Formatter:
    if is_journal(STANDARD_ERROR, os.environ):
        return _ForJournal("%(name)s: %(message)s")
    return _OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s")


def _notice(lines: int) -> bytes:
    """Make the line with the number of dropped ones; it cannot wait in the queue for its turn."""
    text = "%s of the log dropped: standard error was not read; is its reader stuck?"
    lost = (plural(lines, "line"),)
    # Made by hand: through the logger it would wait behind the lines that it is about.
    record = logging.LogRecord("service.log", logging.WARNING, "", 0, text, lost, None)
    return f"{_handler.format(record)}\n".encode()


_handler = _LineHandler()
_handler.setFormatter(_text_formatter())
_writer = LogWriter(STANDARD_ERROR, _notice)
"""A process has one standard error."""
