"""How the aggregator of a cluster is asked through its API server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.parts.verbs import run_verb
from tests.vigil.answers import page
from tests.vigil.verbs import aggregator
from vigil.sources import api_server

if TYPE_CHECKING:
    from pathlib import Path

    from tests.vigil.stand import Stand

_PROXY = "/api/v1/namespaces/mindx-dl/services/http:npu-vigil-aggregator:9821/proxy"


def kubeconfig(directory: Path, server: str, **cluster: Any) -> tuple[str, ...]:
    """Write the file for ``server``; return the options that make a verb ask it alone."""
    (directory / "token").write_text("a-token")
    content = {
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": {"tokenFile": str(directory / "token")}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = directory / "kubeconfig"
    path.write_text(json.dumps(content))
    return "--state-dir", str(directory), "--kubeconfig", str(path), "--store", "directory:/nowhere"


def behind(prefix: str) -> dict[str, Any]:
    """Return the answers of an API server behind a path."""
    return {f"{prefix}{_PROXY}{path}": page(path, answer) for path, answer in aggregator().items()}


def test_an_api_server_behind_a_path_is_asked_there(stand: Stand, tmp_path: Path) -> None:
    stand.answers = behind("/clusters/one")
    where = kubeconfig(tmp_path, f"{stand.url}/clusters/one")
    status, output, errors = run_verb("faults", *where, COLUMNS="300")
    assert (status, errors) == (1, "")
    assert b"through the API server" in output.splitlines()[0]
    assert b"80E18402" in output
    assert stand.sent["Authorization"] == "Bearer a-token"


def test_a_refused_token_is_read_once_more(stand: Stand, tmp_path: Path) -> None:
    stand.answers = behind("")
    stand.refused_tokens = {"Bearer a-token"}
    where = kubeconfig(tmp_path, stand.url)
    stand.on_refusal = lambda: (tmp_path / "token").write_text("newer")
    status, output, errors = run_verb("faults", *where)
    assert (status, errors) == (1, "")
    assert b"80E18402" in output
    assert stand.sent["Authorization"] == "Bearer newer"


def test_an_api_server_that_hangs_is_left(
    stand: Stand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_server, "_ANSWER_SECONDS", 0.1)
    stand.pause.clear()
    _, _, errors = run_verb("faults", *kubeconfig(tmp_path, stand.url))
    assert "through the API server gives no answer: timed out; asking the next source" in errors


@pytest.mark.slow
def test_a_proxy_that_cannot_be_used_is_named(stand: Stand, tmp_path: Path) -> None:
    where = kubeconfig(tmp_path, "https://10.0.0.1:6443", **{"proxy-url": "https://proxy:3128"})
    _, _, errors = run_verb("faults", *where)
    assert "only an http:// proxy to an https:// API server can be used" in errors
    assert stand.asked == []
