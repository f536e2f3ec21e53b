"""Makes the picture of ``vigil demo`` in the README, of what its terminal shows at the end.

::

    python -m tests.vigil.demo.picture
"""

from __future__ import annotations

import io
import os
import re
import sys

from rich.console import Console
from rich.text import Text

from tests.parts.terminal import typed
from tests.parts.tree import ROOT

FILE = ROOT / "docs" / "pictures" / "demo.svg"
NAME = "demo"
"""Begins the identifiers in the picture, so that two runs differ in their times alone."""
_COLUMNS = 130
_ERASED = "\x1b[2K"
_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def make() -> None:
    """Run the demo on a terminal and write the picture.

    Raises ``AssertionError`` where the demo does not reach its states.
    """
    environment = os.environ | {"COLUMNS": str(_COLUMNS), "LINES": "60", "TERM": "xterm-256color"}
    ended = typed([sys.executable, "-m", "vigil", "demo"], "", b"", environment)
    assert ended.status == 0, ended.shown
    # The demo erases its table before it draws it again: the last one follows the last erasure.
    screen = Text.from_ansi(ended.shown.rpartition(_ERASED)[2].strip())
    console = Console(record=True, width=_COLUMNS, file=io.StringIO())
    console.print(screen)
    svg = console.export_svg(title="vigil demo", unique_id=NAME)
    # A page that shows the picture loads no font of another site.
    FILE.write_text(_FONT.sub("", svg), encoding="utf-8")


if __name__ == "__main__":
    make()
