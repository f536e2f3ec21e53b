"""The files of this repository, without those that ``.gitignore`` leaves out."""

from __future__ import annotations

import os
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _ignored() -> list[str]:
    lines = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    return [".git", *(line.strip().strip("/") for line in lines if line.strip())]


def files(*patterns: str) -> list[str]:
    """Return the paths of files relative to ``ROOT`` whose names match a pattern, in order.

    All files without a pattern. No program is started, so a copy without git's folder will do.
    """
    ignored = _ignored()
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [one for one in folders if not any(fnmatch(one, no) for no in ignored)]
        found += [
            str((Path(folder) / name).relative_to(ROOT))
            for name in names
            if not any(fnmatch(name, no) for no in ignored)
            and (not patterns or any(fnmatch(name, pattern) for pattern in patterns))
        ]
    return sorted(found)
