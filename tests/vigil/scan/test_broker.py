"""``vigil scan`` and a real mosquitto: each step to it by itself, and nothing left behind."""

from __future__ import annotations

import asyncio
import socket
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
import pytest

from stores.address import open_store
from stores.base import Beat
from stores.settings import Mqtt
from tests.parts.broker import AGGREGATOR, Broker
from tests.parts.deadlines import patience
from tests.parts.mqtt_proxy import MqttProxy, Plays
from vigil.scan.broker import check_end
from vigil.scan.findings import CheckState

if TYPE_CHECKING:
    from pathlib import Path

    from tests.vigil.scan.server import Scanned, Server

STEPS = ("broker", "broker-tls", "client-certificate", "broker-login", "broker-topics")


def scan(server: Server, url: str, mqtt: Mqtt) -> Scanned:
    """Look at the broker at ``url`` with the settings ``mqtt``."""
    for name, value in msgspec.structs.asdict(mqtt).items():
        if value is not None:
            server.environment[f"VIGIL_MQTT_{name.upper()}"] = str(value)
    return server.scan("--store", url)


def states(scanned: Scanned) -> dict[str, str]:
    return {name: scanned.check(name)["state"] for name in STEPS}


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
def test_a_broker_that_is_well(server: Server, broker: Broker, protocol: str) -> None:
    scanned = scan(server, broker.tls_url, broker.certified("node-1", protocol))
    assert states(scanned) == dict.fromkeys(STEPS, "ok")
    assert 28 <= scanned.check("broker-tls")["facts"]["days"] <= 30
    assert 28 <= scanned.check("client-certificate")["facts"]["days"] <= 30
    assert scanned.check("fault-configuration")["state"] == "ok"


async def test_a_broker_that_keeps_no_large_retained_message(
    server: Server, broker: Broker
) -> None:
    async with MqttProxy(broker.port, Plays(retained_bytes=700)) as proxy:
        scanned = await asyncio.to_thread(scan, server, proxy.url, Mqtt())
    assert scanned.status == 3
    topics = scanned.check("broker-topics")
    assert topics["state"] == "problem"
    assert "keeps no retained message of 16384 bytes" in topics["found"]


async def test_a_running_agent_keeps_its_beat(server: Server, broker: Broker) -> None:
    mqtt = broker.certified("node-1")
    store = open_store(broker.tls_url, mqtt=mqtt, node="node-1")
    reader = open_store(broker.url, mqtt=broker.certified(AGGREGATOR))
    try:
        await store.beat(Beat("node-1", "holder", 5.0, 1))
        assert scan(server, broker.tls_url, mqtt).check("broker-topics")["state"] == "ok"
        await store.beat(Beat("node-1", "holder", 5.0, 2))
        (beat,) = await reader.beats()
        assert (beat.beaten_at_ms, beat.is_broken) == (2, False)
    finally:
        await store.close()
        await reader.close()


def test_a_certificate_for_another_node(server: Server, broker: Broker) -> None:
    scanned = scan(server, broker.tls_url, broker.certified("node-2"))
    assert scanned.status == 3
    assert states(scanned)["broker-login"] == "ok"
    topics = scanned.check("broker-topics")
    assert topics["state"] == "problem"
    assert "node-1" in topics["found"]
    assert "mqtt.certificate_file" in topics["found"]
    assert "vigil/v1/nodes/node-1/" in topics["advice"]


def test_a_wrong_password(server: Server, broker: Broker, tmp_path: Path) -> None:
    mqtt = broker.with_password("node-1")
    (tmp_path / "wrong").write_text("not it\n")
    wrong = msgspec.structs.replace(mqtt, password_file=tmp_path / "wrong")
    scanned = scan(server, broker.password_url, wrong)
    assert scanned.status == 3
    assert scanned.check("broker-tls")["state"] == "not-applicable"
    assert scanned.check("broker-login")["state"] == "problem"
    assert scanned.check("broker-topics")["state"] == "not-applicable"


def test_an_authority_that_did_not_issue_it(server: Server, broker: Broker, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with Broker(other) as stranger:
        mqtt = broker.certified("node-1")
        wrong = msgspec.structs.replace(mqtt, ca_file=stranger.certified("node-1").ca_file)
        scanned = scan(server, broker.tls_url, wrong)
    assert scanned.status == 3
    assert "not accepted" in scanned.check("broker-tls")["found"]


def test_no_broker_and_one_that_sends_nothing(server: Server, broker: Broker) -> None:
    broker.stop()
    mqtt = broker.certified("node-1")
    scanned = scan(server, broker.tls_url, mqtt)
    assert (scanned.status, scanned.check("broker")["state"]) == (3, "problem")
    broker.start()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"mqtt://127.0.0.1:{silent.getsockname()[1]}"
        scanned = server.scan("--store", url)
    assert (scanned.status, scanned.check("broker-login")["state"]) == (3, "problem")
    assert scanned.seconds < patience(30)


@pytest.mark.parametrize(
    ("days", "state"),
    [(-1, CheckState.PROBLEM), (13.9, CheckState.PROBLEM), (14.1, CheckState.OK)],
)
def test_certificate_that_ends_within_two_weeks_is_a_problem(
    days: float, state: CheckState
) -> None:
    end = datetime.now(UTC) + timedelta(days=days)
    assert check_end("broker-tls", "the certificate is good", end).state is state
