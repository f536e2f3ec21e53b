"""Two agents with one node name: one publishes, the other waits and reports it."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.end_to_end.node import Node
from tests.parts.controlplane import LEASES
from tests.parts.deadlines import nothing_happens_for, patience
from tests.parts.places import Cluster, Folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.parts.places import Place

FAULT = "80E01801"
INTERVAL_SECONDS = patience(1.0)
DURATION_SECONDS = 5


@pytest.fixture
def another(tmp_path: Path, built: Path, place: Place) -> Iterator[Callable[[], Node]]:
    """Yield a function that makes agents of one node name; each has its own hardware."""
    nodes: list[Node] = []

    def make() -> Node:
        node = Node(tmp_path / f"host-{len(nodes)}", built, place)
        node.options += ["--heartbeat-interval-seconds", str(INTERVAL_SECONDS)]
        nodes.append(node)
        return node

    yield make
    for node in nodes:
        node.close()


def beat(place: Place, holder: str, age_seconds: float) -> None:
    """Leave a heartbeat of an agent on another host."""
    at = time.time() - age_seconds
    if isinstance(place, Folder):
        file = place.root / "beats" / "node-1.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        content = {"node": "node-1", "holder": holder, "interval_seconds": DURATION_SECONDS / 3}
        file.write_text(json.dumps(content | {"beaten_at_ms": int(at * 1000)}))
        return
    assert isinstance(place, Cluster)
    renewed = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(at))
    spec: dict[str, object] = {"holderIdentity": holder, "renewTime": renewed}
    spec["leaseDurationSeconds"] = DURATION_SECONDS
    place.plane.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "mindx-dl"}})
    place.plane.request("POST", LEASES, {"metadata": {"name": "npu-vigil-node-1"}, "spec": spec})


def reasons(node: Node) -> str:
    return " | ".join(node.ask("/readyz")[1]["reasons"])


def test_the_newcomer_publishes_nothing_until_the_other_falls_silent(
    another: Callable[[], Node],
) -> None:
    first, second = another(), another()
    first.start()
    first.healthy()
    second.emulator.occur(6, FAULT)
    second.start()
    second.up()
    second.wait(lambda: "conflict: another agent" in reasons(second), "the conflict is reported")
    holder = first.status()["heartbeat"]["holder"]
    assert f"conflict: another agent with the node name node-1 runs on {holder}" in reasons(second)
    assert "npu_vigil_heartbeat_conflict 1.0" in second.ask("/metrics")[1]
    first.emulator.occur(3, FAULT)
    first.until(lambda now: now.codes(3) == {FAULT}, "the first one goes on")
    nothing_happens_for(4 * INTERVAL_SECONDS, because="four intervals of the heartbeat pass")
    shown = first.shown()
    assert shown is not None
    assert set(shown.faults) == {"Ascend910-3"}, "the second one published"
    second.waits_for_text("conflict: another agent")
    assert second.logged().count("conflict: another agent") == 1
    assert first.ask("/readyz")[0] == 200
    beaten_at_ms = first.status()["heartbeat"]["beaten_at_ms"]
    first.kill()
    second.until(lambda now: set(now.faults) == {"Ascend910-6"}, "the second takes over")
    assert time.time() - beaten_at_ms / 1000 > 2.9 * INTERVAL_SECONDS
    second.wait(lambda: second.ask("/readyz")[0] == 200, "it is ready")
    first.start()
    first.up()
    first.wait(lambda: "conflict: another agent" in reasons(first), "now it is the newcomer")
    assert second.ask("/readyz")[0] == 200


def test_a_restart_does_not_wait_for_itself(another: Callable[[], Node]) -> None:
    node = another()
    node.options[-1] = "60"
    node.start()
    node.healthy()
    node.wait(lambda: node.status()["heartbeat"]["beats"] > 0, "it beats at once", 10.0)
    node.kill()
    node.emulator.occur(2, FAULT)
    node.start()
    node.up()
    node.until(lambda now: now.codes(2) == {FAULT}, "it publishes again")
    assert "another agent" not in node.logged()


@pytest.mark.parametrize("age_seconds", [-4.0, -3600.0], ids=["fresh", "future"])
def test_a_beat_that_may_be_alive_is_watched_first(
    another: Callable[[], Node], place: Place, age_seconds: float
) -> None:
    node = another()
    beat(place, "other-host_0123", age_seconds)
    begin = time.monotonic()
    node.start()
    node.up()
    node.wait(lambda: "other-host_0123" in reasons(node), "it says whom it waits for")
    assert reasons(node).startswith("waits to see whether another agent with the node name node-1")
    node.healthy()
    assert time.monotonic() - begin > DURATION_SECONDS
    node.wait(lambda: node.ask("/readyz")[0] == 200, "it is ready")


@pytest.mark.alone
def test_a_beat_that_is_old_stops_nothing(another: Callable[[], Node], place: Place) -> None:
    node = another()
    beat(place, "other-host_0123", 3600.0)
    node.start()
    node.up()
    begin = time.monotonic()
    node.healthy()
    assert time.monotonic() - begin < DURATION_SECONDS
    assert "another agent" not in node.logged()


def test_of_two_that_both_beat_one_gives_way(another: Callable[[], Node]) -> None:
    """The one that stood still has been replaced meanwhile; in the end one of them publishes."""
    first, second = another(), another()
    first.start()
    first.healthy()
    second.start()
    second.up()
    second.wait(lambda: "conflict: another agent" in reasons(second), "the conflict is reported")
    os.kill(first.process.pid, signal.SIGSTOP)
    second.wait(lambda: second.ask("/readyz")[0] == 200, "the second takes over")
    os.kill(first.process.pid, signal.SIGCONT)

    def standings() -> list[str]:
        return sorted(one.status()["heartbeat"]["standing"] for one in (first, second))

    first.wait(lambda: standings() == ["conflict", "ours"], "one gives way")
    settled = [one.status()["heartbeat"]["standing"] for one in (first, second)]
    nothing_happens_for(5 * INTERVAL_SECONDS, because="five intervals of the heartbeat pass")
    assert [one.status()["heartbeat"]["standing"] for one in (first, second)] == settled
