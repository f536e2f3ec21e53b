"""The answer of a credential plugin, and the errors about it."""

from __future__ import annotations

import json

import pytest

from stores.kubernetes_api.client.credential_plugin import credential_in
from stores.kubernetes_api.client.unusable import Unusable


def test_error_about_another_version_is_one_short_line() -> None:
    printed = {"apiVersion": "v1", "kind": "ExecCredential", "status": {"token": "abc"}}
    with pytest.raises(Unusable) as caught:
        credential_in(json.dumps(printed).encode(), f"n\t.\x1b{'[' * 5000}")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000
