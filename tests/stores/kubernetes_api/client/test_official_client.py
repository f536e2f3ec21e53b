"""The official client is imported as far as it is needed, and is whole for others."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
