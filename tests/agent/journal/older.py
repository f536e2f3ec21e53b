"""A journal with schema 1: it has the names that members of a fault had before the first release.

``schema-1.sqlite.gz`` was written by the code of commit d1050b15. Its snapshot has two faults: one
of them is unconfirmed and has two sources.
"""

from __future__ import annotations

import gzip
from pathlib import Path

from agent.journal.file import FILE_NAME

OLDER_ROWS = 13
OLDER_END_MS = 1_799_971_200_000


def older_journal(directory: Path) -> Path:
    """Put the kept copy into ``directory``; return its path."""
    path = directory / FILE_NAME
    copy = Path(__file__).with_name("schema-1.sqlite.gz")
    path.write_bytes(gzip.decompress(copy.read_bytes()))
    return path
