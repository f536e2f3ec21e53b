"""Logging: one line per message on standard error, with the level as systemd and people read it."""

from __future__ import annotations

import logging
import sys
import time


class _OneLine(logging.Formatter):
    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def format(self, record: logging.LogRecord) -> str:
        return super().format(record).replace("\n", "\\n")


def set_up_logging() -> None:
    """Send everything from INFO on to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    # One line per request says nothing that the metrics do not.
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
