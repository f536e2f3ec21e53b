"""Storage faults on their way to a ClusterD: through the store, and over gRPC to a real server."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from contract.codes.storage_faults import fault_id
from tests.parts.certificates import make_authority, make_client, make_server
from tests.parts.clusterd import FaultServer
from tests.parts.deadlines import nothing_happens_for, patience
from tests.parts.places import Cluster, Folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.end_to_end.node import Node

PROCESS, MEMORY, LINK = "110001020", "110001021", "110001023"
OCCUR, RECOVER = (PROCESS, "occur"), (PROCESS, "recover")
LABELS = {"mc-consumer-publicfault": "true"}


class Clients:
    """The status files of a node's storage clients."""

    def __init__(self, directory: Path, node: Node) -> None:
        self.dpc = directory / "dpc_status_check"
        self.dtfs = directory / "dtfs_status_check"
        node.environment["VIGIL_STORAGE_DPC_FILE"] = str(self.dpc)
        node.environment["VIGIL_STORAGE_DTFS_FILE"] = str(self.dtfs)
        node.environment["VIGIL_STORAGE_PERIOD_SECONDS"] = "0.1"

    def write_status(self, *, process: int = 0, link: int | None = None) -> None:
        """Write the newest status; files are replaced, as no reader sees half of one in
        ``/proc``.
        """
        _replace(self.dpc, f"[instidx=0]\nDPC_INTERNAL_ERROR: 0\nDPC_PROCESS_ERROR: {process}\n")
        if link is not None:
            _replace(self.dtfs, f"[instidx=0]\nDTFS_PROCESS_ERROR: 0\nDTFS_LINK_ERROR: {link}\n")


def _replace(path: Path, text: str) -> None:
    draft = path.with_suffix(".new")
    draft.write_text(text)
    draft.chmod(0o600)
    draft.replace(path)


@pytest.fixture
def clients(tmp_path: Path, node: Node) -> Clients:
    return Clients(tmp_path, node)


@pytest.fixture
def folder_clients(tmp_path: Path, folder_node: Node) -> Clients:
    return Clients(tmp_path, folder_node)


@pytest.fixture
def server() -> Iterator[FaultServer]:
    """Yield a ClusterD with a port of its own; it is not started."""
    server = FaultServer()
    server.start()
    server.stop()  # from now on it has a port
    yield server
    server.stop()


def published(node: Node, client: str) -> dict[str, Any] | None:
    """Return the message in the node's document about ``client``; ``None`` without a document."""
    name = f"npu-vigil-{client}-fault-{node.name}"
    place = node.place
    if isinstance(place, Folder):
        file = place.root / "mindx-dl" / f"{name}.json"
        if not file.exists():
            return None
        content = json.loads(file.read_text())
        labels = content["labels"]
    else:
        assert isinstance(place, Cluster)
        status, answer = place.plane.ask("GET", f"/api/v1/namespaces/mindx-dl/configmaps/{name}")
        if status == 404:
            return None
        content, labels = answer, answer["metadata"]["labels"]
    assert labels == LABELS
    message: dict[str, Any] = json.loads(content["data"]["PublicFault"])
    return message


def assertions(node: Node, client: str) -> dict[str, str]:
    message = published(node, client)
    faults = [] if message is None else message["faults"]
    return {fault["faultCode"]: fault["assertion"] for fault in faults}


def shown(node: Node) -> set[tuple[str, str, str]]:
    """Return what the node view shows of storage."""
    return {
        (fault["subject"], fault["code"], fault["level"])
        for fault in node.ask("/api/v1/faults")[1]["faults"]
    }


def blind(node: Node) -> set[str]:
    """Return the sources of the whole node that give no answer."""
    return {source["source"] for source in node.status()["blind"]}


def test_faults_go_through_the_store(node: Node, clients: Clients) -> None:
    clients.write_status(link=0)
    node.start()
    node.healthy()
    node.wait(lambda: len(node.journal("reports")) > 1, "the files are read")
    assert published(node, "dpc") is None
    clients.write_status(process=-1, link=0)
    began = time.time()
    node.wait(lambda: assertions(node, "dpc") == {PROCESS: "occur"}, "the fault is reported", 3)
    message = published(node, "dpc")
    assert message is not None
    assert message["version"] == "1.0"
    assert message["resource"] == "dpcStorage"
    assert abs(message["timestamp"] / 1000 - began) < patience(3)
    (fault,) = message["faults"]
    assert abs(fault.pop("faultTime") / 1000 - began) < patience(3)
    assert fault == {
        "faultId": fault_id(node.name, PROCESS),
        "faultType": "Node",
        "faultCode": PROCESS,
        "assertion": "occur",
        "faultLocation": {},
        "influence": [{"nodeName": node.name, "nodeSN": "", "deviceIds": [0, 1, 2, 3, 4, 5, 6, 7]}],
        "description": "",
    }
    assert shown(node) == {("storage DPC", PROCESS, "SubHealthFault")}
    (sample,) = (
        line
        for line in node.ask("/metrics")[1].splitlines()
        if PROCESS in line and line.startswith("npu_vigil_faults{")
    )
    assert 'part="DPC"' in sample
    assert node.node_info() is None
    clients.write_status(process=-1, link=-1)
    node.wait(lambda: assertions(node, "dtfs") == {LINK: "occur"}, "the other client's is, too", 3)
    clients.dtfs.unlink()
    node.wait(lambda: "storage DTFS" in blind(node), "a file that is gone is reported", 3)
    clients.write_status(process=-1, link=-1)
    node.wait(lambda: "storage DTFS" not in blind(node), "until it is back", 3)
    node.kill()
    clients.write_status(process=0, link=-1)
    node.start()
    node.wait(
        lambda: assertions(node, "dpc") == {PROCESS: "recover"}, "the recovery is reported", 25
    )
    again = published(node, "dpc")
    assert again is not None
    assert again["id"] != message["id"]
    assert again["timestamp"] > message["timestamp"]
    assert assertions(node, "dtfs") == {LINK: "occur"}
    assert shown(node) == {("storage DTFS", LINK, "PreSeparateNPU")}


def test_a_lost_state_directory_finds_its_faults_in_the_store(
    folder_node: Node, folder_clients: Clients
) -> None:
    folder_clients.write_status(process=-1)
    folder_node.start()
    folder_node.wait(lambda: assertions(folder_node, "dpc") == {PROCESS: "occur"}, "sent", 20)
    folder_node.kill()
    for path in folder_node.state_dir.iterdir():
        if path.is_file():
            path.unlink()
    _replace(folder_clients.dpc, "")
    folder_node.start()
    folder_node.up()
    folder_node.wait(lambda: bool(shown(folder_node)), "it is known again")
    nothing_happens_for(1, because="a repeated report would come with the next second")
    assert assertions(folder_node, "dpc") == {PROCESS: "occur"}
    folder_clients.write_status(process=0)
    folder_node.wait(lambda: assertions(folder_node, "dpc") == {PROCESS: "recover"}, "sent", 25)


def test_nothing_is_lost_and_nothing_repeated_over_grpc(
    folder_node: Node, folder_clients: Clients, server: FaultServer
) -> None:
    node, clients = folder_node, folder_clients
    node.environment["VIGIL_STORAGE_CLUSTERD"] = f"127.0.0.1:{server.port}"
    clients.write_status(link=0)
    node.start()
    node.healthy()
    clients.write_status(process=-1, link=-1)
    node.wait(lambda: len(shown(node)) == 2, "both faults are known")
    node.wait(lambda: node.status()["fault_service"]["trouble"] is not None, "nobody listens", 10)
    # A fault that is not in the journal yet is lost with the agent, as its file changes meanwhile.
    node.wait(
        lambda: all(node.assertions(code) for code in (PROCESS, LINK)), "both are in the journal"
    )
    node.kill()
    node.start()
    node.up()
    clients.write_status(process=0, link=-1)
    node.wait(lambda: len(shown(node)) == 1, "one is over")
    node.kill()
    server.start()
    node.start()
    node.wait(lambda: len(server.assertions) == 3, "all is reported", 20)
    node.up()
    assert [one for one in server.assertions if one[0] == PROCESS] == [OCCUR, RECOVER]
    assert (LINK, "occur") in server.assertions
    assert {message.resource for message in server.messages} == {"dpcStorage", "dtfsStorage"}
    devices = server.messages[0].faults[0].influence[0].deviceIds
    assert list(devices) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert published(node, "dpc") is None
    # A message whose acknowledgement is not in the journal is sent again.
    node.wait(lambda: not node.journal("public-faults")[-1].get("waiting"), "it is committed")
    node.kill()
    node.start()
    node.up()
    nothing_happens_for(1.5, because="a call is repeated after _FIRST_PAUSE_SECONDS, 1")
    assert len(server.assertions) == 3
    clients.write_status(process=0, link=0)
    node.wait(lambda: server.assertions[3:] == [(LINK, "recover")], "only what is new", 5)


def test_answers_other_than_yes(
    folder_node: Node, folder_clients: Clients, server: FaultServer
) -> None:
    server.codes = [410, 500, 0, 409]
    server.start()
    folder_node.environment["VIGIL_STORAGE_CLUSTERD"] = f"127.0.0.1:{server.port}"
    folder_clients.write_status(process=-1)
    folder_node.start()
    folder_node.wait(lambda: server.assertions == [OCCUR], "sent the third time", 20)
    assert len(server.peers) == 3
    assert len(set(server.peers)) == 3  # no connection is kept
    folder_clients.write_status(process=0)
    folder_node.wait(lambda: len(server.peers) == 4, "the recovery is called invalid")
    folder_node.wait(lambda: folder_node.status()["fault_service"]["refused"] == 1, "and counted")
    nothing_happens_for(1.5, because="a call is repeated after _FIRST_PAUSE_SECONDS, 1")
    assert len(server.peers) == 4
    folder_node.waits_for_text("invalid: 127.0.0.1")
    assert folder_node.status()["fault_service"]["waiting"] == 0


def test_over_tls_with_a_certificate(
    tmp_path: Path, folder_node: Node, folder_clients: Clients, server: FaultServer
) -> None:
    make_authority(tmp_path)
    make_server(tmp_path)
    make_client(tmp_path, "agent", "agents")
    server.start(certificates=tmp_path)
    folder_node.environment |= {
        "VIGIL_STORAGE_CLUSTERD": f"127.0.0.1:{server.port}",
        "VIGIL_STORAGE_CA_FILE": str(tmp_path / "ca.crt"),
        "VIGIL_STORAGE_CERTIFICATE_FILE": str(tmp_path / "agent.crt"),
        "VIGIL_STORAGE_KEY_FILE": str(tmp_path / "agent.key"),
    }
    folder_clients.write_status(process=-1)
    folder_node.start()
    folder_node.wait(lambda: server.assertions == [OCCUR], "sent", 20)


@pytest.mark.exec
@pytest.mark.parametrize("is_configured", [False, True])
def test_grpc_is_loaded_only_to_send(
    folder_node: Node, folder_clients: Clients, server: FaultServer, is_configured: bool
) -> None:
    server.start()
    if is_configured:
        folder_node.environment["VIGIL_STORAGE_CLUSTERD"] = f"127.0.0.1:{server.port}"
    folder_clients.write_status(process=-1)
    folder_node.start()
    folder_node.healthy()
    folder_node.wait(lambda: len(shown(folder_node)) == 1, "the fault is known")
    if is_configured:
        folder_node.wait(lambda: server.assertions == [OCCUR], "sent", 20)
    maps = Path(f"/proc/{folder_node.process.pid}/maps").read_text()
    assert ("cygrpc" in maps) is is_configured
    assert ("google" in maps) is is_configured
