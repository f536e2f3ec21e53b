"""Run a driver child whose events are marked; started as ``python -I -S``, see ``parts``."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from dcmi_shim.worker import child

_marks = os.open(os.environ["VIGIL_PARTS"], os.O_WRONLY | os.O_APPEND)
_on_event = child.Child._on_event


def _marked(self: child.Child, pointer: int | None) -> None:
    begun = time.perf_counter()
    _on_event(self, pointer)
    # After the frame was sent, so that the mark does not delay it.
    os.write(_marks, f"{begun}\tcallback\t\n{time.perf_counter()}\tframe\t\n".encode())


child.Child._on_event = _marked  # type: ignore[method-assign]

if __name__ == "__main__":
    child.main()
