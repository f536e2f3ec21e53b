"""What is installed: version, commit, libraries, and packages that hide ours.

Only the standard library is imported: a package that another one hides cannot be used.
"""

from __future__ import annotations

import json
import platform
import re
from importlib.metadata import (
    Distribution,
    PackageNotFoundError,
    distribution,
    packages_distributions,
    version,
)
from importlib.util import find_spec
from pathlib import Path

DISTRIBUTION = "npu-vigil"
COMMIT_FILE = "commit"
"""File beside the metadata of a wheel of ``make release``; ``release/backend.py`` writes it."""
_PACKAGES = Path(__file__).parents[1]
"""The folder that has our packages."""


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


def hidden_packages() -> dict[str, str]:
    """Return from where each of our packages comes that another one hides or mixes with, by name.

    Our packages have general names. Another distribution can have the same one: earlier on Python's
    path, or in the same folder, where its files and ours replace each other.
    """
    owners = packages_distributions()
    hidden = {}
    for name in (distribution(DISTRIBUTION).read_text("top_level.txt") or "").split():
        spec = find_spec(name)
        places = list(spec.submodule_search_locations or ()) if spec is not None else []
        others = sorted(set(owners.get(name, ())) - {DISTRIBUTION})
        if str(_PACKAGES / name) not in places:
            hidden[name] = places[0] if places else "nowhere"
        elif others:
            hidden[name] = f"the distribution {' and '.join(others)}"
    return hidden


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
