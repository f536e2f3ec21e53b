"""The Kubernetes store while files and plugins with its credentials change or fail."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import shlex
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from contract.errors import StoreForbidden, StoreUnavailable
from stores.address import open_store
from stores.base import Changed, Document, DocumentsListed, Selection
from stores.kubernetes_api.client import credentials
from stores.kubernetes_api.client.credential_files import CredentialFiles
from tests.parts.certificates import make_client
from tests.parts.connect_proxy import ConnectProxy
from tests.parts.controlplane import CHIEF_TOKEN
from tests.parts.deadlines import patience, stays, time_passes, until_succeeds
from tests.parts.watching import watching

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from stores.base import Store
    from tests.parts.controlplane import ControlPlane

pytestmark = pytest.mark.apiserver

LOG = "stores.kubernetes_api.client.credentials"
DOCUMENT = Document("mindx-dl", "one", {"text": "x"})
VERSION = "client.authentication.k8s.io/v1"


def a_document(text: str) -> Document:
    return Document("mindx-dl", "one", {"text": text})


class Kubeconfig:
    """One that a test changes."""

    def __init__(self, path: Path, plane: ControlPlane) -> None:
        self.path = path
        self._plane = plane

    def write(self, user: Mapping[str, Any], cluster: Mapping[str, str] | None = None) -> None:
        authority = str(self._plane.directory / "ca.crt")
        where = {"server": self._plane.url, "certificate-authority": authority, **(cluster or {})}
        content = {
            "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "clusters": [{"name": "a", "cluster": where}],
            "users": [{"name": "a", "user": user}],
        }
        self.put(json.dumps(content))

    def put(self, text: str) -> None:
        draft = self.path.with_suffix(".new")
        draft.write_text(text)
        draft.replace(self.path)

    def write_plugin(self, script: str) -> None:
        """Write a plugin with ``script`` and count its runs.

        The script may use ``token TEXT``, which prints a credential.
        """
        answer = {"apiVersion": VERSION, "kind": "ExecCredential", "status": {"token": "TOKEN"}}
        runs = shlex.quote(str(self._runs))
        lines = [
            f"token() {{ echo {shlex.quote(json.dumps(answer))} | sed s/TOKEN/$1/; }}",
            f"echo >>{runs}",
            script,
        ]
        arguments = ["-c", "\n".join(lines)]
        self.write({"exec": {"command": "sh", "args": arguments, "apiVersion": VERSION}})

    @property
    def _runs(self) -> Path:
        return self.path.with_name("runs")

    @property
    def runs(self) -> int:
        """Return how often the plugin was run."""
        return len(self._runs.read_text().splitlines()) if self._runs.exists() else 0


@pytest.fixture
def kubeconfig(control_plane: ControlPlane, tmp_path: Path) -> Kubeconfig:
    kubeconfig = Kubeconfig(tmp_path / "kubeconfig", control_plane)
    kubeconfig.write({"token": CHIEF_TOKEN})
    return kubeconfig


@pytest.fixture
async def store(kubeconfig: Kubeconfig) -> AsyncIterator[Store]:
    store = open_store("kubernetes:", kubeconfig.path)
    yield store
    await store.close()


async def until_written(store: Store, text: str, seconds: float = 20) -> float:
    """Try until it is written, as daemons do; the seconds that it took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    work = partial(store.put, a_document(text))
    await until_succeeds(work, StoreUnavailable, StoreForbidden, seconds=seconds)
    return loop.time() - began


async def until_refused(store: Store) -> None:
    """Write until that raises something."""
    async with asyncio.timeout(patience(10)):
        while True:
            await store.put(DOCUMENT)
            await time_passes(0.1)


async def test_unusable_credentials_leave_the_last_good_ones_in_force(
    store: Store, kubeconfig: Kubeconfig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOG)
    await store.put(DOCUMENT)
    good = kubeconfig.path.read_text()
    garbage = ("", good[:-50], good.replace(CHIEF_TOKEN, "a b"))
    for number, text in enumerate(garbage):
        kubeconfig.put(text)
        await stays(1.1, because="files are looked at every second")
        for one in range(3):
            await store.put(a_document(f"{number}-{one}"))
    (begin,) = caplog.records
    assert "the credentials in use stay" in begin.getMessage()
    assert str(kubeconfig.path) in begin.getMessage()
    kubeconfig.put(good)

    async def repaired() -> None:
        while len(caplog.records) < 2:
            await store.put(DOCUMENT)
            await time_passes(0.1)

    await asyncio.wait_for(repaired(), patience(10))
    assert "are good again" in caplog.records[1].getMessage()
    assert CHIEF_TOKEN not in caplog.text


async def test_unusable_credentials_at_the_start_are_read_again(
    store: Store, kubeconfig: Kubeconfig, caplog: pytest.LogCaptureFixture
) -> None:
    kubeconfig.put("clusters: [")
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="is not valid YAML"):
            await store.put(DOCUMENT)
    assert [record.name for record in caplog.records] == [LOG]
    kubeconfig.write({"token": CHIEF_TOKEN})
    await store.put(DOCUMENT)


async def test_a_client_certificate_that_is_replaced(
    control_plane: ControlPlane, store: Store, kubeconfig: Kubeconfig, tmp_path: Path
) -> None:
    """One that the server accepts for no user, and one of a user without rights."""
    here = tmp_path / "pki"
    here.mkdir()
    for name in ("ca.crt", "ca.key"):
        (here / name).write_bytes((control_plane.directory / name).read_bytes())
    kubeconfig.write({"client-certificate": "pki/agent.crt", "client-key": "pki/agent.key"})
    make_client(here, "agent", "strangers")
    with pytest.raises(StoreForbidden, match='"agent" cannot'):
        await store.put(DOCUMENT)
    make_client(here, "agent", "system:masters")
    assert await until_written(store, "replaced") < patience(10)
    # From here on the old certificate is not needed any more.
    async with watching(store, Selection("mindx-dl")) as seen:
        await seen.until(lambda seen: bool(seen.of(DocumentsListed)))
        await store.put(a_document("seen"))
        await seen.until(lambda seen: bool(seen.of(Changed)))


async def test_a_token_that_is_replaced_breaks_no_watch(
    store: Store, kubeconfig: Kubeconfig
) -> None:
    async with watching(store, Selection("mindx-dl")) as seen:
        await seen.until(lambda seen: bool(seen.of(DocumentsListed)))
        kubeconfig.write({"token": "stranger-token"})
        with pytest.raises(StoreForbidden, match="stranger"):
            await until_refused(store)
        kubeconfig.write({"token": CHIEF_TOKEN})
        await until_written(store, "back")
        await seen.until(lambda seen: seen.documents["mindx-dl", "one"].data["text"] == "back")
        assert len(seen.of(DocumentsListed)) == 1


async def test_a_plugin_that_hangs_once(
    store: Store,
    kubeconfig: Kubeconfig,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Requests end with its deadline, later ones have another, and the loop never waits."""
    caplog.set_level(logging.INFO, LOG)
    monkeypatch.setattr(credentials, "_DEADLINE_SECONDS", patience(1.5))
    # From the begin of the plugin; the second request comes before its end.
    monkeypatch.setattr(credentials, "_PAUSE_SECONDS", patience(3.0))
    kubeconfig.write_plugin(f"[ -e hung ] || {{ >hung; sleep 300; }}; token {CHIEF_TOKEN}")
    monkeypatch.chdir(kubeconfig.path.parent)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await time_passes(0.02)
            ticks += 1

    ticking = asyncio.create_task(tick())
    with pytest.raises(StoreUnavailable, match="did not end in time and was ended"):
        await store.put(DOCUMENT)
    assert ticks > 20
    ticking.cancel()
    with pytest.raises(StoreUnavailable, match="did not end in time and was ended"):
        await store.put(DOCUMENT)
    assert kubeconfig.runs == 1
    await until_written(store, "after")
    assert kubeconfig.runs == 2
    begin, end = (record.getMessage() for record in caplog.records)
    assert "did not end in time" in begin
    assert "good again" in end


async def test_a_file_system_that_hangs(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One thread is left to it, and no other is begun until that is back."""
    caplog.set_level(logging.INFO, LOG)
    monkeypatch.setattr(credentials, "_DEADLINE_SECONDS", 0.2)
    monkeypatch.setattr(credentials, "_ENDING_SECONDS", 0.1)
    monkeypatch.setattr(credentials, "_PAUSE_SECONDS", 0.0)
    answers = threading.Event()
    read = CredentialFiles.read
    begun: list[Path] = []

    def hanging(files: CredentialFiles, path: Path, most_bytes: int) -> bytes:
        begun.append(path)
        answers.wait(patience(30))
        return read(files, path, most_bytes)

    monkeypatch.setattr(CredentialFiles, "read", hanging)
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="is their file system there"):
            await store.put(DOCUMENT)
    assert len(begun) == 1
    answers.set()
    monkeypatch.setattr(credentials, "_DEADLINE_SECONDS", 10.0)
    await until_written(store, "back")
    assert len(caplog.records) == 2


async def test_a_plugin_that_is_refused_again_and_again(
    store: Store,
    kubeconfig: Kubeconfig,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, LOG)
    pause_seconds = patience(1.0)
    monkeypatch.setattr(credentials, "_PAUSE_SECONDS", pause_seconds)
    kubeconfig.write_plugin("token nobody-issued-$$")
    clock = asyncio.get_running_loop().time
    began = clock()

    async def ask() -> int:
        asked = 0
        while clock() <= began + 4 * pause_seconds:
            with pytest.raises(StoreForbidden, match="Unauthorized"):
                await store.put(DOCUMENT)
            asked += 1
        return asked

    asked = sum(await asyncio.gather(*(ask() for _ in range(4))))
    assert 2 <= kubeconfig.runs <= 2 + (clock() - began) / pause_seconds
    assert asked > 2 * kubeconfig.runs
    assert caplog.records == [], "a refusal is an error of its request, and no plugin failed"
    kubeconfig.write_plugin(f"token {CHIEF_TOKEN}")
    await until_written(store, "issued")


async def test_a_plugin_that_fails_while_its_last_token_is_good(
    store: Store,
    kubeconfig: Kubeconfig,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(credentials, "_PAUSE_SECONDS", 0.5)
    kubeconfig.write_plugin(f"token {CHIEF_TOKEN}")
    await store.put(DOCUMENT)
    kubeconfig.write_plugin("echo no network >&2; exit 1")

    async def failed() -> None:
        while kubeconfig.runs < 4:
            await store.put(DOCUMENT)
            await time_passes(0.2)

    await asyncio.wait_for(failed(), patience(20))
    assert len(caplog.records) == 1
    assert "sh ended with status 1: no network; the credentials in use stay" in caplog.text


BEHIND = {"tls-server-name": "localhost"}
"""The certificate is not for the name by which the proxy is asked for the API server."""


async def test_a_proxy(
    control_plane: ControlPlane,
    store: Store,
    kubeconfig: Kubeconfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    kubeconfig.write(
        {"token": CHIEF_TOKEN}, {"server": f"https://api.test:{control_plane.port}", **BEHIND}
    )
    async with ConnectProxy() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        async with watching(store, Selection("mindx-dl")) as seen:
            await seen.until(lambda seen: bool(seen.of(DocumentsListed)))
            for number in range(9):
                await store.put(a_document(str(number)))
            await seen.until(lambda seen: seen.documents["mindx-dl", "one"].data["text"] == "8")
        assert set(proxy.tunnels) == {f"api.test:{control_plane.port}"}
        # One for the watch and one for the writes; a slow answer makes a further one.
        assert len(proxy.tunnels) < 9, "connections are used again"


async def test_a_proxy_that_wants_a_password(
    control_plane: ControlPlane,
    store: Store,
    kubeconfig: Kubeconfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    server = {"server": f"https://api.test:{control_plane.port}", **BEHIND}
    kubeconfig.write({"token": CHIEF_TOKEN}, server)
    expected = base64.b64encode(b"user:p@ss").decode()
    async with ConnectProxy(f"Basic {expected}") as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:p%40ss@127.0.0.1:{proxy.port}")
        await store.put(DOCUMENT)
        wrong = f"http://user:wr0ng@127.0.0.1:{proxy.port}"
        kubeconfig.write({"token": CHIEF_TOKEN}, {**server, "proxy-url": wrong})
        with pytest.raises(StoreUnavailable) as caught:
            await until_refused(store)
        assert "407" in str(caught.value)
        assert "wr0ng" not in str(caught.value)


async def test_loopback_and_hosts_of_no_proxy_are_connected_directly(
    control_plane: ControlPlane,
    store: Store,
    kubeconfig: Kubeconfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Loopback is asked directly, and what NO_PROXY covers; only the rest by the proxy."""
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with ConnectProxy() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        await store.put(DOCUMENT)
        kubeconfig.write(
            {"token": CHIEF_TOKEN}, {"server": f"https://localhost:{control_plane.port}"}
        )
        await until_written(store, "localhost")
        assert proxy.tunnels == []
        monkeypatch.setenv("NO_PROXY", f".test:{control_plane.port}")
        kubeconfig.write(
            {"token": CHIEF_TOKEN}, {"server": f"https://api.test:{control_plane.port}", **BEHIND}
        )
        with pytest.raises(StoreUnavailable, match=r"api\.test"):
            await until_refused(store)
        assert proxy.tunnels == []
        monkeypatch.setenv("NO_PROXY", f".test:{control_plane.port + 1}")
        # The environment of a process does not change, so it is read with the files.
        kubeconfig.write(
            {"token": f"{CHIEF_TOKEN} "},
            {"server": f"https://api.test:{control_plane.port}", **BEHIND},
        )
        await until_written(store, "by proxy")
        assert proxy.tunnels
