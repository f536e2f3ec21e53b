"""The other Pythons of this machine, with which the wheel is tested.

    python -m tests.release.interpreters

Exit status: 0 two or more are there, 3 fewer.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from release.bundle import PYTHONS

MIN_INTERPRETERS = 2
_NOT_ENOUGH = 3


def interpreters() -> dict[str, Path]:
    """Return the path of each supported Python that this machine has, but for the running one."""
    own = f"3.{sys.version_info.minor}"
    paths = {version: _path(version) for version in PYTHONS if version != own}
    return {version: path for version, path in paths.items() if path is not None}


def _path(version: str) -> Path | None:
    """Return an interpreter of pyenv, or of ``PATH``.

    What pyenv has on ``PATH`` starts only the versions that its user has chosen.
    """
    own = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    if own:
        return own[-1]
    path = shutil.which(f"python{version}")
    return None if path is None or "shims" in path else Path(path)


def main() -> int:
    """Print which Pythons are there, and which are missing; return the exit status."""
    here = interpreters()
    own = f"3.{sys.version_info.minor}"
    missing = [version for version in PYTHONS if version not in (own, *here)]
    lines = [f"the wheel is tested with Python {own} and {', '.join(here) or 'no other'}"]
    if missing:
        lines.append(f"not on this machine, not tested: Python {', '.join(missing)}")
    lacking = MIN_INTERPRETERS - len(here)
    if lacking > 0:
        lines.append(f"install {lacking} of them, for example with pyenv")
    sys.stdout.write("\n".join(lines) + "\n")
    return _NOT_ENOUGH if lacking > 0 else 0


if __name__ == "__main__":
    sys.exit(main())
