"""Servers without Kubernetes: what ``systemd/`` ships, with a real broker, agent, aggregator."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import msgspec
import pytest

from contract import topics
from contract.errors import StoreForbidden, StoreUnavailable
from contract.wire import pubfault_pb2
from stores.address import open_store
from stores.base import Document
from stores.settings import Mqtt
from tests.parts.deadlines import patience
from tests.parts.processes import Running, free_ports, program
from tests.vigil.scan.server import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

SYSTEMD = Path(__file__).parents[2] / "systemd"
FAULT = "80E01801"
PUBLIC_FAULT = "220001001"


def make(place: Path, *what: str) -> subprocess.CompletedProcess[str]:
    """Run ``make-certificates``."""
    command = [str(SYSTEMD / "make-certificates"), str(place), *what]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def pki(tmp_path: Path) -> Path:
    """Make certificates for all programs as the guide does; return their directory."""
    place = tmp_path / "pki"
    for what in (
        ("authority",),
        ("broker", "localhost", "127.0.0.1"),
        ("node", "node-1"),
        ("node", "node-2"),
        ("aggregator",),
        ("reader",),
    ):
        made = make(place, *what)
        assert (made.returncode, made.stderr) == (0, "")
    return place


@pytest.fixture
def url(tmp_path: Path, pki: Path) -> Iterator[str]:
    """Start a mosquitto on the shipped configuration, but for where things are."""
    (port,) = free_ports(1)
    text = (SYSTEMD / "mosquitto/npu-vigil.conf").read_text()
    rights = tmp_path / "rights"
    rights.write_text((SYSTEMD / "mosquitto/rights").read_text())
    text = text.replace("listener 8883", f"listener {port} 127.0.0.1")
    text = text.replace("/etc/mosquitto/npu-vigil/rights", str(rights))
    text = text.replace("/etc/mosquitto/npu-vigil", str(pki))
    configuration = tmp_path / "mosquitto.conf"
    configuration.write_text(f"user root\n{text}")
    log = tmp_path / "mosquitto.log"
    broker = Running([program("mosquitto"), "-c", configuration], log)
    try:
        broker.wait_until(lambda: "running" in log.read_text(), 10)
        yield f"mqtts://127.0.0.1:{port}"
    finally:
        broker.stop()


def shipped(name: str, tmp_path: Path, pki: Path, url: str, key: str) -> Path:
    """Return a configuration of ``systemd/``, but for where things are."""
    text = (SYSTEMD / name).read_text()
    for there, here in (
        ("mqtts://broker.example:8883", url),
        ("/etc/npu-vigil/pki/agent", str(pki / key)),
        ("/run/credentials/npu-vigil-aggregator.service/mqtt", str(pki / key)),
        ("/etc/npu-vigil/pki", str(pki)),
        ("/var/lib", str(tmp_path / "lib")),
        (":9820", ":0"),
        (":9821", ":0"),
    ):
        text = text.replace(there, here)
    file = tmp_path / name
    file.write_text(text)
    return file


def certified(pki: Path, user: str) -> Mqtt:
    """Return the settings with which ``user`` connects."""
    files = {"certificate_file": pki / f"{user}.crt", "key_file": pki / f"{user}.key"}
    return msgspec.convert({"ca_file": pki / "authority.crt", **files}, Mqtt)


@pytest.fixture
def server(tmp_path: Path, built: Path, pki: Path, url: str) -> Iterator[Server]:
    """Return a server whose agent has the shipped configuration."""
    file = shipped("agent-mqtt.toml", tmp_path, pki, url, "node-1")

    class Configured:
        options = ("--config", str(file))

    server = Server(tmp_path / "node", built, Configured())  # type: ignore[arg-type]
    server.give_bmc(tmp_path / "node")
    yield server
    server.close()


@pytest.fixture
def clients(tmp_path: Path) -> Path:
    """Make certificates for gRPC with an authority of their own; return their directory."""
    place = tmp_path / "grpc"
    for what in ("authority",), ("grpc", "127.0.0.1"), ("client", "ccae"):
        assert make(place, *what).returncode == 0
    return place


@pytest.fixture
def grpc_port() -> int:
    (port,) = free_ports(1)
    return port


@pytest.fixture
def aggregator(
    tmp_path: Path, pki: Path, url: str, clients: Path, grpc_port: int
) -> Iterator[Running]:
    """Run an aggregator with the shipped configuration and that of the gRPC services."""
    file = shipped("aggregator-mqtt.toml", tmp_path, pki, url, "npu-vigil-aggregator")
    text = (SYSTEMD / "aggregator-grpc.toml").read_text()
    for there, here in (
        ("/etc/npu-vigil/pki/grpc-authority", clients / "authority"),
        ("/etc/npu-vigil/pki", clients),
        ("/run/credentials/npu-vigil-aggregator.service", clients),
        ("0.0.0.0:8899", f"127.0.0.1:{grpc_port}"),
    ):
        text = text.replace(there, str(here))
    file.write_text(file.read_text() + text)
    running = Running(
        [sys.executable, "-m", "vigil", "aggregator", "--config", file], tmp_path / "aggregator.log"
    )
    yield running
    running.stop()


def received_over_grpc(port: int, clients: Path, shows: str | None) -> tuple[int, str]:
    """Send a public fault of chip 6; the answer. ``shows`` names the client's certificate."""
    now_ms = time.time_ns() // 1_000_000
    influence = [pubfault_pb2.PubFaultInfo(nodeName="node-1", deviceIds=[6])]
    fault = pubfault_pb2.Fault(faultId="link-to-6", faultType="NPU", faultCode=PUBLIC_FAULT)
    fault.faultTime, fault.assertion = now_ms, "occur"
    fault.influence.extend(influence)
    message = pubfault_pb2.PublicFaultRequest(
        id="message-of-ccae", timestamp=now_ms, version="1.0", resource="CCAE", faults=[fault]
    )
    files = [clients / "authority.crt"]
    files += [] if shows is None else [clients / f"{shows}.key", clients / f"{shows}.crt"]
    credentials = grpc.ssl_channel_credentials(*(file.read_bytes() for file in files))
    with grpc.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
        call = channel.unary_unary(
            "/PubFault/SendPublicFault",
            request_serializer=pubfault_pb2.PublicFaultRequest.SerializeToString,
            response_deserializer=pubfault_pb2.RespStatus.FromString,
        )
        answer = call(message, timeout=patience(10))
    return answer.code, answer.info


def test_a_fault_on_a_server_reaches_the_readers(
    server: Server, aggregator: Running, tmp_path: Path, url: str, clients: Path, grpc_port: int
) -> None:
    scanned = server.scan()
    assert scanned.problems() <= {"kernel-log"}, "before the agent runs"
    server.start()
    server.up()
    server.emulator.occur(3, FAULT)
    store = tmp_path / "lib/npu-vigil-aggregator/store"
    cluster = store / "mindx-dl/cluster-info-device-0.json"

    def shown() -> bool:
        return cluster.exists() and FAULT in json.loads(cluster.read_text())["data"][cluster.stem]

    server.wait(shown, "the fault is in the directory", 20)
    assert server.scan().problems() <= {"kernel-log"}, "beside the agent"
    assert received_over_grpc(grpc_port, clients, "ccae")[0] == 0
    server.wait(lambda: PUBLIC_FAULT in cluster.read_text(), "the public fault is there, too", 20)
    with pytest.raises(grpc.RpcError):
        received_over_grpc(grpc_port, clients, None)
    assert aggregator.status is None


@pytest.mark.server
async def test_rights_are_by_the_name_in_the_certificate(pki: Path, url: str) -> None:
    mine = Document("kube-system", "mindx-dl-deviceinfo-node-1", {"text": "mine"})
    owner = open_store(url, mqtt=certified(pki, "node-1"), node="node-1")
    other = open_store(url, mqtt=certified(pki, "node-2"), node="node-2")
    aggregator = open_store(url, mqtt=certified(pki, "npu-vigil-aggregator"))
    try:
        await owner.put(mine)
        with pytest.raises(StoreForbidden):
            await other.put(mine)
        found = await aggregator.get("kube-system", "mindx-dl-deviceinfo-node-1")
        assert found is not None
        assert found.data == mine.data
        with pytest.raises(StoreForbidden):
            await owner.put(Document("mindx-dl", "cluster-info-node-cm", {"text": "no"}))
    finally:
        for store in (owner, other, aggregator):
            await store.close()


def test_each_topic_of_a_node_is_granted_by_its_name() -> None:
    """A topic that the program learns has to be granted, or an agent may not use it."""
    used = {
        function("%u")
        for name, function in vars(topics).items()
        if name.endswith("_topic") and name not in ("document_topic", "is_beat_topic")
    }
    kinds = topics.document_filters(None, None, None)
    used |= {one.replace("+", "%u") for one in kinds if "/nodes/" in one}
    rights = (SYSTEMD / "mosquitto/rights").read_text().splitlines()
    patterns = [line.split()[1:] for line in rights if line.startswith("pattern")]
    granted = {topic: right for right, topic in patterns if "%u" in topic}
    assert granted.keys() == used
    assert not any("#" in topic or "+" in topic for topic in granted)
    alone = {topic.rpartition("/")[2]: right for topic, right in granted.items()}
    assert (alone["events"], alone["heard"]) == ("write", "read")


@pytest.mark.server
async def test_no_client_comes_in_without_a_certificate(pki: Path, url: str) -> None:
    store = open_store(url, mqtt=msgspec.convert({"ca_file": pki / "authority.crt"}, Mqtt))
    try:
        with pytest.raises((StoreForbidden, StoreUnavailable)):
            await store.get("mindx-dl", "cluster-info-node-cm")
    finally:
        await store.close()


@pytest.mark.server
def test_certificates_are_not_made_twice_or_for_names_with_a_meaning(pki: Path) -> None:
    before = (pki / "node-1.crt").read_bytes()
    for what in (
        ("node", "node-1"),
        ("node", "npu-vigil-aggregator"),
        ("node", "authority"),
        ("node", "grpc"),
        ("client", "node-1"),
        ("client", "broker"),
        ("grpc",),
        ("node", "../node-3"),
        ("authority",),
        ("broker",),
        ("friend",),
    ):
        made = make(pki, *what)
        assert (made.returncode, made.stdout) == (2, ""), what
        assert made.stderr.startswith("make-certificates: ")
    assert (pki / "node-1.crt").read_bytes() == before
    assert (pki / "node-1.key").stat().st_mode & 0o777 == 0o600
    assert sorted(file.name for file in pki.glob("*.key")) == [
        "authority.key",
        "broker.key",
        "node-1.key",
        "node-2.key",
        "npu-vigil-aggregator.key",
        "npu-vigil-reader.key",
    ]
