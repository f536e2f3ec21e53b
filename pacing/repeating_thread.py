"""A thread that repeats one step, also behind a time without memory."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_WITHOUT_MEMORY_SECONDS = 1.0


def repeat_in_thread(step: Callable[[], bool], name: str) -> threading.Thread:
    """Start a thread that calls ``step`` until that returns ``False``; return the thread.

    A step that lacks memory is repeated after a second: the thread would end for good.
    """
    thread = threading.Thread(target=_repeat, args=(step,), name=name, daemon=True)
    thread.start()
    return thread


def _repeat(step: Callable[[], bool]) -> None:
    while True:
        try:
            while step():
                pass
            return
        except MemoryError:
            pass
        except threading.ThreadError as error:
            # This is a ``RuntimeError``, which an error in a step may be, too.
            if "allocate lock" not in str(error):
                raise
        time.sleep(_WITHOUT_MEMORY_SECONDS)
