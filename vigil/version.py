"""Version, commit, interpreter and libraries of this installation, for ``vigil --version``."""

from __future__ import annotations

import json
import platform
import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution, version

DISTRIBUTION = "npu-vigil"
COMMIT_FILE = "commit"
"""File beside the metadata of a wheel of ``make release``; ``build_backend.py`` writes it."""


def version_text() -> str:
    """Return the version as a line for people."""
    return f"vigil {version(DISTRIBUTION)}"


def version_json() -> str:
    """Return version, commit, Python and libraries as a JSON object.

    ``commit`` is ``null`` where the installation is not a wheel of a release, and the version of a
    library is ``null`` where the library is not installed.
    """
    installed = distribution(DISTRIBUTION)
    commit = installed.read_text(COMMIT_FILE)
    answer = {
        "version": installed.version,
        "commit": None if commit is None else commit.strip(),
        "python": platform.python_version(),
        "libraries": {name: _version(name) for name in _required(installed)},
    }
    return json.dumps(answer, indent=2)


def _required(installed: Distribution) -> list[str]:
    """Return the names of the distributions that ``installed`` needs without an extra, in order."""
    return sorted(
        match[0]
        for line in installed.requires or ()
        if "extra ==" not in line and (match := re.match(r"[\w.-]+", line)) is not None
    )


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
