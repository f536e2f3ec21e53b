"""The files of this repository, as git has them."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def tracked(*patterns: str) -> list[str]:
    """Return the paths that git tracks, relative to ``ROOT``; all of them without a pattern."""
    listed = subprocess.run(
        ["git", "ls-files", "--", *patterns],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    return [name for name in listed if (ROOT / name).is_file()]
