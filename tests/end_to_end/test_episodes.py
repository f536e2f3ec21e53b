"""What happens to faults arrives at the aggregator once, whoever is killed on the way.

Everything is real: mosquitto with TLS and client certificates, agent and aggregator as processes,
the emulated driver.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import time
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from stores.settings import Mqtt
from tests.aggregator.daemon import Daemon
from tests.end_to_end.node import Node
from tests.parts import exposition
from tests.parts.broker import AGGREGATOR, Broker
from tests.parts.deadlines import let_time_pass, patience
from tests.parts.exposition import (
    AGENT_ON_MQTT,
    Kind,
    listed,
    scraped,
)
from tests.parts.verbs import run_verb

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


_log = logging.getLogger(__name__)

pytestmark = pytest.mark.timeout(240)

OUTAGE_SECONDS = float(os.environ.get("EPISODES_OUTAGE_SECONDS", "6"))
"""How long the broker is away: 60 in the run by hand."""

EVENTS = 200
CODES = ("80E01801", "80C98009", "80818201", "80E18402")


def settings_of(mqtt: Mqtt) -> dict[str, str]:
    """Return the environment with the settings of a broker."""
    return {f"VIGIL_MQTT_{name.upper()}": str(value) for name, value in given(mqtt).items()}


def given(mqtt: Mqtt) -> dict[str, object]:
    """Return the settings that are not the defaults."""
    defaults = msgspec.structs.asdict(Mqtt())
    settings = msgspec.structs.asdict(mqtt)
    return {name: value for name, value in settings.items() if value != defaults[name]}


class OnBroker:
    """The place of a node on a broker; its documents are not looked at here."""

    def __init__(self, broker: Broker) -> None:
        self.options = ["--store", broker.tls_url]

    def read(self, name: str) -> dict[str, str] | None:
        raise NotImplementedError(name)

    def write(self, name: str, data: dict[str, str]) -> None:
        raise NotImplementedError(name)

    def delete(self, name: str) -> None:
        raise NotImplementedError(name)


class Site:
    """A broker, an aggregator and a node."""

    def __init__(self, tmp_path: Path, built: Path, broker: Broker) -> None:
        self.broker = broker
        self.node = Node(tmp_path / "node", built, OnBroker(broker))
        self.node.environment |= settings_of(broker.certified(self.node.name))
        where = tmp_path / "aggregator"
        where.mkdir()
        file = where / "aggregator.toml"
        settings = given(broker.certified(AGGREGATOR))
        file.write_text(
            "[mqtt]\n" + "".join(f'{name} = "{value}"\n' for name, value in settings.items())
        )
        self.aggregator = Daemon(where, "--store", broker.tls_url, "--config", str(file))
        self.history = where / "history.sqlite"

    def received(self) -> Counter[str]:
        """Count the changes that the aggregator has, by their episode, kind and place."""
        page: dict[str, Any] = self.aggregator.ask("/api/v1/history?after=0&limit=10000")[1]
        assert not page["more"]
        assert not any(row["lost"] for row in page["events"])
        return Counter(_change(row["event"]) for row in page["events"] if row["event"])

    def journaled(self) -> Counter[str]:
        """Count the changes in the node's journal, by their episode, kind and place."""
        with closing(sqlite3.connect(self.node.state_dir / "journal.sqlite")) as connection:
            rows = connection.execute(
                "SELECT sequence, body FROM rows WHERE kind = 'changes'"
            ).fetchall()
        return Counter(
            _change(change | {"sequence": sequence, "place": place})
            for sequence, body in rows
            for place, change in enumerate(json.loads(body))
        )

    def storm(self, first: int, count: int, seconds: float) -> None:
        """Let faults come and go, evenly over so many seconds."""
        for number in range(first, first + count):
            chip, code = number % 8, CODES[number // 16 % len(CODES)]
            if number // 8 % 2 == 0:
                self.node.emulator.occur(chip, code)
            else:
                self.node.emulator.recover(chip, code)
            let_time_pass(seconds / count)

    def listens(self) -> None:
        """Wait until the agent is up and gets events: what was over before has no episode."""
        self.node.up()
        self.node.wait(lambda: bool(self.node.emulator.status()["subscribers"]), "it gets events")

    def settled(self, seconds: float = 40.0) -> float:
        """Wait until the aggregator has what the journal has; how long it took."""
        # A busy machine may not have written the first change yet.
        self.node.wait(lambda: bool(self.journaled()), "the journal has changes")
        begin = time.monotonic()
        while True:
            wanted, received = self.journaled(), self.received()
            assert max(received.values(), default=1) == 1, "reported twice"
            if wanted == received:
                return time.monotonic() - begin
            waited = time.monotonic() - begin
            assert waited < patience(seconds), (
                len(wanted),
                len(received),
                self.node.logged()[-3000:],
            )
            let_time_pass(0.2)

    def proved(self) -> Any:
        """Wait until ``vigil prove`` finds nothing that is under way; return what it prints."""
        proof: Any = None

        def is_settled() -> bool:
            nonlocal proof
            arguments = ("--state-dir", str(self.node.state_dir), "--server", self.aggregator.url)
            proof = json.loads(run_verb("prove", "--json", *arguments)[1])
            return "under way" not in proof["counts"]

        self.node.wait(is_settled, "nothing is under way")
        return proof

    def close(self) -> None:
        self.aggregator.stop()
        self.node.close()


def _of(found: dict[str, Kind], begins: str) -> dict[str, Kind]:
    return {name: kind for name, kind in found.items() if name.startswith(begins)}


def _change(change: dict[str, Any]) -> str:
    return " ".join(str(change[key]) for key in ("sequence", "place", "episode", "kind", "code"))


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path, built: Path) -> Iterator[Site]:
    """Yield a started node, aggregator and broker; the parameter has the broker's options.

    With them the broker keeps retained messages over a restart, or does not.
    """
    where = tmp_path / "broker"
    where.mkdir()
    with Broker(where, getattr(request, "param", ())) as broker:
        site = Site(tmp_path, built, broker)
        site.aggregator.spawn()
        site.node.start()
        try:
            site.listens()
            yield site
        finally:
            site.close()


def test_broker_and_agent_are_killed_and_nothing_is_lost_or_reported_twice(site: Site) -> None:
    site.storm(0, 20, 0.5)
    site.settled()
    assert site.received()
    # A broker that is killed loses a document that it has acknowledged and not yet delivered.
    site.proved()
    site.broker.kill()
    site.storm(20, EVENTS // 2, OUTAGE_SECONDS / 2)
    site.node.kill()
    site.node.start()
    site.listens()
    site.storm(20 + EVENTS // 2, EVENTS // 2, OUTAGE_SECONDS / 2)

    def is_behind() -> bool:
        behind = site.node.status()["episodes"]
        is_late = behind["behind"] > EVENTS // 4 and behind["since_ms"] is not None
        return is_late and bool(behind["trouble"])

    site.node.wait(is_behind, "it is behind, and says why")
    site.broker.start()
    seconds = site.settled()
    received = site.received()
    episodes = {one.split()[2] for one in received}
    _log.info("%d changes of %d episodes, %.1f s", len(received), len(episodes), seconds)
    assert len(episodes) >= EVENTS // 2
    site.node.wait(lambda: site.node.status()["episodes"]["behind"] == 0, "nothing is behind")
    assert site.node.status()["episodes"]["trouble"] is None
    proof = site.proved()
    assert (proof["status"], proof["gaps"]) == (0, []), json.dumps(proof)
    assert proof["steps"]["verdict to history"]["count"] > 0
    agent, aggregator = site.node.ask("/metrics")[1], site.aggregator.ask("/metrics")[1]
    assert _of(scraped(agent), "npu_vigil_history_forwarding_") == listed(AGENT_ON_MQTT)
    assert _of(scraped(aggregator), "npu_vigil_history_") == _of(
        listed(exposition.AGGREGATOR), "npu_vigil_history_"
    )


@pytest.mark.parametrize("site", [("persistence false",)], indirect=True)
def test_an_aggregator_that_is_killed_goes_on_where_it_was(site: Site) -> None:
    site.storm(0, 40, 0.5)
    site.aggregator.kill()
    site.storm(40, 40, 0.5)
    site.aggregator.spawn()
    site.storm(80, 20, 0.5)
    site.aggregator.kill()
    site.broker.kill()
    site.node.kill()
    site.broker.start()  # it has forgotten what was acknowledged
    site.node.start()
    site.aggregator.spawn()
    site.listens()
    site.storm(100, 20, 0.5)
    site.settled()
    assert len(site.received()) > 60
    proof = site.proved()
    assert (proof["status"], proof["gaps"]) == (0, [])
    assert proof["proved"] > 0
