"""The settings of stores ``directory:PATH``."""

from __future__ import annotations

from contract.settings import Section


class Directory(Section, frozen=True):
    """How a directory is used, for stores ``directory:PATH``."""

    others_may_write: bool = False
    """Take it as root although other users may write there."""
