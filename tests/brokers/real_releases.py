"""The private parts of aiomqtt, in the oldest and in the newest release that is allowed.

``make test-brokers`` runs it, because it takes the package index.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from stores.mqtt.extended_client import VERSIONS
from tests.parts.tree import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.server

_TESTS = ("tests/stores/mqtt/test_extended_client.py", "tests/stores/mqtt/test_store.py")
_OLDEST, _END = (".".join(map(str, version)) for version in VERSIONS)


@pytest.mark.parametrize("wanted", [f"=={_OLDEST}", f">={_OLDEST},<{_END}"])
def test_the_store_works_with_both_ends_of_the_range(wanted: str, tmp_path: Path) -> None:
    # Without dependencies: paho stays the installed one, which is pinned by its hash.
    install = ("pip", "install", "--no-deps", "--target", tmp_path, f"aiomqtt{wanted}")
    subprocess.run([sys.executable, "-m", *install], check=True)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    script = "import aiomqtt; print(aiomqtt.__file__)"
    used = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert used.stdout.startswith(str(tmp_path)), "not the release of the environment"
    tests = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *_TESTS)
    result = subprocess.run(tests, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-4000:]
