"""What a signal does while a daemon is still being loaded."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType


def end_at_a_signal() -> None:
    """End with status 0 at SIGTERM or SIGINT until the daemon's own handlers take their place.

    Loading takes about a second; nothing has begun by then that would have to be ended.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(0)
