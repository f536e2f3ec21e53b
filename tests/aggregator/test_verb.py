"""``vigil aggregator`` on the command line: all errors of wrong use are printed at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aggregator.config import AggregatorConfiguration, load_aggregator
from contract.errors import ConfigurationError, ListenError
from tests.parts.verbs import vigil_process
from vigil import main

if TYPE_CHECKING:
    from pathlib import Path


def test_layers(tmp_path: Path) -> None:
    file = tmp_path / "aggregator.toml"
    file.write_text('store = ["directory:/a", "directory:/b"]\nlisten = "127.0.0.1:1"\n')
    loaded = load_aggregator(file, {"VIGIL_LISTEN": "127.0.0.1:2"}, {"publish": ["directory:/c"]})
    assert loaded == AggregatorConfiguration(
        store=("directory:/a", "directory:/b"), publish=("directory:/c",), listen="127.0.0.1:2"
    )
    assert load_aggregator(None, {}, {}).publish_urls == ("kubernetes:",)
    assert load_aggregator(file, {}, {}).publish_urls == ("directory:/a",)


@pytest.mark.daemon
def test_all_problems_at_once(tmp_path: Path) -> None:
    file = tmp_path / "aggregator.toml"
    file.write_text('store = ["nowhere"]\ntouch_period_seconds = 0\nlisten = "x"\nshards = 3\n')
    result = vigil_process("aggregator", "--config", str(file), VIGIL_PUBLISH="ftp:")
    assert result.returncode == 2
    for where in ("store[0]", "touch_period_seconds", "listen", "shards", "VIGIL_PUBLISH"):
        assert where in result.stderr


@pytest.mark.parametrize("content", [None, b"= broken", b"\xff\xfe"])
def test_a_file_that_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "aggregator.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"aggregator\.toml"):
        load_aggregator(file, {}, {})


@pytest.mark.parametrize(
    ("url", "is_valid"),
    [
        ("http://{node}:9820/", True),
        ("https://example.com/agents/{node}/?a=1#/agent", True),
        ("http://example.com/", False),
        ("javascript:alert({node})", False),
        ("http://{node}/{rack}", False),
        ('http://{node}/" onclick="', False),
        ("http://{node} /", False),
    ],
)
def test_the_page_of_an_agent_is_an_address_with_the_name_of_the_node(
    url: str, *, is_valid: bool
) -> None:
    environment = {"VIGIL_PAGES_AGENT_URL": url}
    if is_valid:
        assert load_aggregator(None, environment, {}).pages.agent_url == url
    else:
        with pytest.raises(ConfigurationError, match="VIGIL_PAGES_AGENT_URL: is not a valid"):
            load_aggregator(None, environment, {})


@pytest.mark.daemon
def test_an_address_that_is_no_address(tmp_path: Path) -> None:
    store = f"directory:{tmp_path / 'store'}"
    result = vigil_process(
        "aggregator", "--store", store, "--state-dir", str(tmp_path), "--listen", "9821"
    )
    assert result.returncode == 2
    assert "--listen: is not HOST:PORT" in result.stderr


@pytest.mark.daemon
@pytest.mark.parametrize(
    ("options", "output"),
    [
        ([], "certificate_file, key_file, client_ca_file missing"),
        (["--grpc-plaintext"], "exclude each other"),
    ],
)
def test_grpc_is_over_mutual_tls_or_in_plain_text(
    tmp_path: Path, options: list[str], output: str
) -> None:
    files = {"VIGIL_GRPC_KEY_FILE": "key.pem"} if options else {}
    result = vigil_process("aggregator", "--grpc-listen", "127.0.0.1:0", *options, **files)
    assert result.returncode == 2
    assert "grpc" in result.stderr
    assert output in result.stderr


def test_an_address_for_grpc_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise ListenError("cannot serve gRPC on 127.0.0.1:8899: Address already in use")

    monkeypatch.setattr(main, "app", refuse)
    with pytest.raises(SystemExit) as caught:
        main.main()
    assert caught.value.code == 3


@pytest.mark.daemon
def test_a_kubeconfig_that_is_not_there(tmp_path: Path) -> None:
    result = vigil_process(
        "aggregator", "--kubeconfig", str(tmp_path / "none"), "--state-dir", str(tmp_path)
    )
    assert result.returncode == 2
    assert "there is no kubeconfig file" in result.stderr
