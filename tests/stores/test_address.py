"""Store addresses as operators write them."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from contract.errors import ConfigurationError
from stores.address import open_store
from stores.directory.store import DirectoryStore

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def outside_of_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "not a valid store address"),
        ("kubernetes", "not a valid store address"),
        ("kubernetes:production", "not a valid store address"),
        ("/var/lib/vigil", "not a valid store address"),
        ("mqtt:broker", "not a valid store address"),
        ("mqtt://", "is not mqtt://HOST:PORT"),
        ("mqtts://broker:8883/path", "is not mqtts://HOST:PORT"),
        ("mqtts://broker:88830", "a port that is none"),
        ("mqtts://me:secret@broker", "mqtt.password_file"),
        ("directory:", "has no path"),
        ("directory://host/path", "has no path"),
        ("kubernetes:", "--kubeconfig FILE"),
    ],
)
def test_wrong_addresses_name_the_right_form(url: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        open_store(url)


def test_a_password_in_an_address_is_not_repeated() -> None:
    with pytest.raises(ConfigurationError) as raised:
        open_store("mqtts://me:secret@broker")
    assert "mqtts://…@broker" in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="is not a directory"):
        open_store(f"directory:{tmp_path / 'file'}")


def test_a_missing_kubeconfig_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=str(tmp_path / "nothing")):
        open_store("kubernetes:", tmp_path / "nothing")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing either"))
    with pytest.raises(ConfigurationError, match="nothing either"):
        open_store("kubernetes:")


def test_addresses_are_kept_as_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("directory:here/there")
    assert isinstance(store, DirectoryStore)
    assert store.url == "directory:here/there"
    assert not (tmp_path / "here").exists()


@pytest.mark.slow
def test_clients_of_other_stores_are_not_loaded_for_a_directory(tmp_path: Path) -> None:
    program = (
        "import sys; from stores.address import open_store; "
        f"open_store('directory:{tmp_path}'); "
        "sys.exit(any(one in sys.modules for one in ('kubernetes', 'aiohttp', 'aiomqtt')))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
