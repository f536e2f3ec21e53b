"""Throw-away keys that sign a release in tests."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from release.manifest import SIGNER

if TYPE_CHECKING:
    from pathlib import Path


def new_key(folder: Path, name: str) -> tuple[Path, Path]:
    """Make a throw-away key; return its path and that of a file of allowed signers."""
    key = folder / name
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(key)]
    subprocess.run(command, check=True)
    signers = folder / f"{name}-signers"
    signers.write_text(f"{SIGNER} {key.with_suffix('.pub').read_text()}")
    return key, signers
