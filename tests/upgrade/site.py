"""Two nodes with an aggregator on a store, whose state is kept in an archive and taken from it.

An archive has the state directories of the daemons, the raw content of the store, and the faults of
the emulated hardware. A store is read and written without code of the product, so that no release
changes what another one left.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dcmi_shim.emulator.bmc import BmcAlarm
from release.archives import folder_members, read_tar_gz, tar_gz
from tests.aggregator.daemon import Daemon
from tests.end_to_end.node import Node
from tests.parts.deadlines import wait_until
from tests.parts.places import Folder
from tests.parts.processes import program
from tests.parts.verbs import run_verb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.parts.broker import Broker
    from tests.parts.controlplane import ControlPlane

KEPT = Path(__file__).parent
NODES = ("node-1", "node-2")
_SECONDS = 60.0
_NAMESPACES = ("kube-system", "mindx-dl", "cluster-system")
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/mindx-dl/leases"
_SERVER_FIELDS = ("uid", "resourceVersion", "creationTimestamp", "managedFields")
_WRITER = "fieldManager=npu-vigil"
_TIMES = {"UpdateTime", "updateTime", "CheckCode", "checkCode"}
"""Members of documents that each write changes."""


class RawStore(Protocol):
    """A store whose whole content can be kept."""

    name: str

    @property
    def options(self) -> list[str]:
        """Return the options of a daemon on this store."""

    def content(self) -> dict[str, str]:
        """Return the text of each document, by namespace and name or by topic."""

    def fill(self, content: dict[str, str]) -> None:
        """Write what ``content`` has returned."""

    def data(self, key: str, text: str) -> Any:
        """Return the data of a document; ``None`` for a heartbeat or state of the product."""


class DirectoryStore:
    """Files below ``root``."""

    name = "directory"

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def options(self) -> list[str]:
        return ["--store", f"directory:{self._root}"]

    def content(self) -> dict[str, str]:
        texts: dict[str, str] = {}
        for path in [path for path in self._root.rglob("*.json") if path.is_file()]:
            # A daemon may delete one meanwhile.
            with contextlib.suppress(FileNotFoundError):
                texts[str(path.relative_to(self._root))] = path.read_text()
        return texts

    def fill(self, content: dict[str, str]) -> None:
        for name, text in content.items():
            path = self._root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def data(self, key: str, text: str) -> Any:
        return json.loads(text).get("data")


class ApiServerStore:
    """ConfigMaps of the namespaces of MindCluster, and the Leases of heartbeats."""

    name = "kubernetes"

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane

    @property
    def options(self) -> list[str]:
        return ["--store", "kubernetes:", "--kubeconfig", str(self.plane.kubeconfig)]

    def content(self) -> dict[str, str]:
        lists = [f"/api/v1/namespaces/{space}/configmaps" for space in _NAMESPACES]
        content = {}
        for path in (*lists, _LEASES):
            for item in self.plane.request("GET", path)["items"]:
                name = item["metadata"]["name"]
                if name != "kube-root-ca.crt" and not name.startswith("extension-apiserver"):
                    for field in _SERVER_FIELDS:
                        item["metadata"].pop(field, None)
                    content[f"{path}/{name}"] = json.dumps(item)
        return content

    def fill(self, content: dict[str, str]) -> None:
        for space in _NAMESPACES:
            self.plane.ask("POST", "/api/v1/namespaces", {"metadata": {"name": space}})
        for path, text in content.items():
            self.plane.request("POST", f"{path.rpartition('/')[0]}?{_WRITER}", json.loads(text))

    def data(self, key: str, text: str) -> Any:
        return json.loads(text).get("data")


class BrokerStore:
    """Messages that a broker retains."""

    name = "mqtt"

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @property
    def options(self) -> list[str]:
        return ["--store", self._broker.url]

    @property
    def _address(self) -> tuple[str, ...]:
        return ("-h", "127.0.0.1", "-p", str(self._broker.port))

    def content(self) -> dict[str, str]:
        arguments = (*self._address, "-t", "vigil/#", "--retained-only", "-W", "2", "-F", "%t %p")
        # mosquitto_sub ends with a status of its own when its time is over.
        shown = subprocess.run(
            [program("mosquitto_sub"), *arguments], capture_output=True, text=True, check=False
        )
        return dict(line.split(" ", 1) for line in shown.stdout.splitlines())

    def fill(self, content: dict[str, str]) -> None:
        for topic, text in content.items():
            arguments = (*self._address, "-t", topic, "-r", "-q", "1", "-s")
            subprocess.run(
                [program("mosquitto_pub"), *arguments], input=text, text=True, check=True
            )

    def data(self, key: str, text: str) -> Any:
        return json.loads(text).get("data")


class Site:
    """Two agents with emulated hardware, and an aggregator; none of them is started."""

    def __init__(self, directory: Path, built: Path, store: RawStore) -> None:
        self.store = store
        self._directory = directory
        self.nodes = []
        for name in NODES:
            folder = directory / name
            folder.mkdir(parents=True)
            node = Node(folder, built, _Options(store, folder), name)
            node.give_bmc(folder)
            node.environment["VIGIL_HEARTBEAT_INTERVAL_SECONDS"] = "1"
            self.nodes.append(node)
        self.aggregator = Daemon(directory / "aggregator", *store.options)

    def close(self) -> None:
        """End all daemons."""
        self.aggregator.stop()
        for node in self.nodes:
            node.close()

    def start_agents(self) -> None:
        """Start the agents and wait until both are ready."""
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            node.up()
            node.ready(_SECONDS)

    def stop_agents(self) -> None:
        """Stop the agents as their service manager does."""
        for node in self.nodes:
            assert node.stop()[0] == 0, node.logged()

    def raise_faults(self, faults: dict[str, Any]) -> None:
        """Give the emulated hardware the faults of a kept site."""
        for node in self.nodes:
            for chip, code in faults[node.name]["chips"]:
                node.emulator.occur(chip, code)
            for code, device, index, raised_at in faults[node.name]["bmc"]:
                node.emulator.bmc.occur(BmcAlarm(code, device, index, raised_at_seconds=raised_at))

    def documents(self) -> dict[str, Any]:
        """Return the data of all documents, decoded and without times of writes.

        Without heartbeats and state of daemons: each process has its own.
        """
        return {
            key: _decoded(data)
            for key, text in self.store.content().items()
            if "npu-vigil" not in key
            if (data := self.store.data(key, text)) is not None
        }

    def faults(self) -> list[dict[str, Any]]:
        """Return what the aggregator shows of all faults.

        Parts of servers have no times: each process has its own, because node-info has none.
        """
        shown = self.aggregator.ask("/api/v1/faults")[1]["faults"]
        for fault in shown:
            if fault["kind"] == "host":
                del fault["since_ms"], fault["received_at_ms"]
        return sorted(shown, key=lambda fault: json.dumps(fault, sort_keys=True))

    def wait_until_equal(self, documents: dict[str, Any]) -> None:
        """Wait until the store has exactly ``documents``."""
        wait_until(
            lambda: self.documents() == documents,
            lambda: "the documents are as before\n" + _difference(documents, self.documents()),
            _SECONDS,
        )

    def proof(self) -> dict[str, Any]:
        """Return the judgement of ``vigil prove`` about the journals and the aggregator."""
        directories = [f"--state-dir={node.state_dir}" for node in self.nodes]
        status, output, errors = run_verb(
            "prove", "--json", *directories, "--server", self.aggregator.url
        )
        assert output, (status, errors)
        proof: dict[str, Any] = json.loads(output)
        return proof

    def kept(self, faults: dict[str, Any], epoch: int) -> bytes:
        """Return the archive of the stopped site."""
        folder = self._directory / "kept"
        for node in self.nodes:
            _without_machine(node.state_dir / "journal.sqlite")
            ignore = shutil.ignore_patterns("*.sock", "*.lock")
            shutil.copytree(node.state_dir, folder / node.name, ignore=ignore)
        ignore = shutil.ignore_patterns("*.log", "listen", "*.sock", "*.lock")
        shutil.copytree(self._directory / "aggregator", folder / "aggregator", ignore=ignore)
        (folder / "store.json").write_text(json.dumps(self.store.content(), indent=1))
        (folder / "faults.json").write_text(json.dumps(faults, indent=1))
        return tar_gz(folder_members(folder), epoch)

    def take(self, version: str) -> list[dict[str, Any]]:
        """Fill directories, store and hardware with what ``version`` kept; return its faults."""
        archive = (KEPT / version / f"{self.store.name}.tar.gz").read_bytes()
        content = {member.name: member.data for member in read_tar_gz(archive)}
        self.store.fill(json.loads(content.pop("store.json")))
        faults = json.loads(content.pop("faults.json"))
        self.raise_faults(faults)
        places = {node.name: node.state_dir for node in self.nodes}
        places["aggregator"] = self._directory / "aggregator"
        for name, data in content.items():
            owner, _, rest = name.partition("/")
            path = places[owner] / rest
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.write_bytes(data)
        shown: list[dict[str, Any]] = faults["shown"]
        return shown


class _Options(Folder):
    """The options of any store; ``Site`` reads the documents itself."""

    def __init__(self, store: RawStore, root: Path) -> None:
        super().__init__(root)
        self._store = store

    @property
    def options(self) -> list[str]:
        return self._store.options


def _without_machine(journal: Path) -> None:
    """Take the id of this machine out of a journal, as where ``/etc/machine-id`` is empty.

    An agent does not take the chips of another machine from a journal.
    """
    with closing(sqlite3.connect(journal)) as connection:
        rows = connection.execute("SELECT sequence, body FROM rows WHERE kind = 'snapshot'")
        for sequence, text in rows.fetchall():
            body = json.loads(text)
            body["machine"] = ""
            connection.execute(
                "UPDATE rows SET body = ? WHERE sequence = ?",
                (json.dumps(body, separators=(",", ":")), sequence),
            )
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _decoded(value: Any) -> Any:
    """Return ``value`` with JSON in texts decoded, and without times of writes."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        return _decoded(json.loads(value))
    if isinstance(value, dict):
        return {key: _decoded(item) for key, item in value.items() if key not in _TIMES}
    return [_decoded(item) for item in value] if isinstance(value, list) else value


def _difference(before: dict[str, Any], now: dict[str, Any]) -> str:
    def lines() -> Iterator[str]:
        for key in sorted({*before, *now}):
            if before.get(key) != now.get(key):
                yield f"{key}\n  before: {before.get(key)}\n  now:    {now.get(key)}"

    return "\n".join(lines())
