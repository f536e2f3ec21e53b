"""The official client is imported as far as it is needed, and is whole for others."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[4] / "pyproject.toml"
_NEEDED = """
import sys
import stores.kubernetes_api.client.official_client
from stores.kubernetes_api.client.connection import ApiConnection
unneeded = {"requests", "oauthlib", "urllib3", "websocket", "kubernetes"} & sys.modules.keys()
assert not unneeded, unneeded
"""
_NOTHING = """
import sys
from stores.kubernetes_api.client.connection import ApiConnection
unneeded = {name for name in sys.modules if name.startswith("kubernetes")}
assert not unneeded, unneeded
"""
_WHOLE = """
import kubernetes.aio
from kubernetes import client
assert client.ApiClient is not kubernetes.aio.client.ApiClient
from stores.kubernetes_api.client.official_client import Configuration
assert Configuration is kubernetes.aio.client.Configuration
"""


@pytest.mark.slow
def test_only_what_is_needed_is_imported() -> None:
    for script in (_NOTHING, _NEEDED, _NEEDED + _WHOLE, _WHOLE):
        subprocess.run([sys.executable, "-c", script], check=True)


def test_the_installed_release_is_in_the_range() -> None:
    # Imported late: where a part is missing, the test of that part must still run.
    from stores.kubernetes_api.client.official_client import VERSIONS

    installed = tuple(int(number) for number in metadata.version("kubernetes").split(".")[:3])
    first, end = VERSIONS
    assert first <= installed < end


def test_the_project_allows_the_same_range() -> None:
    from stores.kubernetes_api.client.official_client import VERSIONS

    first, end = (".".join(map(str, version)) for version in VERSIONS)
    dependencies = tomllib.loads(PROJECT.read_text())["project"]["dependencies"]
    assert f"kubernetes>={first},<{end}" in dependencies


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("kubernetes.aio.client.configuration", "Configuration"),
        ("kubernetes.aio.config", "incluster_config"),
        ("kubernetes.aio.config.kube_config", "KubeConfigLoader"),
    ],
)
def test_a_part_that_is_imported_is_there(module: str, name: str) -> None:
    assert hasattr(importlib.import_module(module), name)
