"""Real aggregators that advise, on a real API server: the second goes on where the first was."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from stores.base import Document, Selection
from tests.aggregator.advising.advised import post, reports, waiting
from tests.aggregator.leaders import LEASE_SECONDS, leads
from tests.aggregator.nodes import T0, faulty, healthy, report
from tests.parts import pod_groups
from tests.parts.deadlines import until
from tests.vigil.advise import cluster

if TYPE_CHECKING:
    from pathlib import Path

    from stores.base import Store
    from tests.aggregator.conftest import Make
    from tests.aggregator.daemon import Daemon
    from tests.parts.controlplane import ControlPlane

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(90)]

_KEPT = Selection(namespace="mindx-dl", label=("npu-vigil/state", "advice"))
_NOT_KNOWN = "without the state of an earlier session"


@pytest.fixture
def kind() -> str:
    return "kubernetes"


def advised(daemon: Daemon) -> dict[str, Any]:
    """Return by profile what is decided about jobs, but for how many sessions that took."""
    return {
        profile: [(one["job"], one["action"], one["pods"]) for one in found["decisions"]]
        for profile, found in reports(daemon).items()
    }


def is_unknown(daemon: Daemon) -> bool:
    """Return whether the aggregator does not know the earlier state."""
    return any(text.startswith(_NOT_KNOWN) for text in reports(daemon)["upstream"]["not_known"])


async def has_kept(store: Store, what: str) -> Document:
    """Wait until a document of the kept state has ``what``."""

    async def document() -> Document | None:
        listed = await store.list(_KEPT)
        return next((one for one in listed if what in one.data["state"]), None)

    kept = await until(document, f"{what} is kept", step_seconds=0.1)
    assert kept is not None
    return kept


async def test_a_leader_that_is_killed_leaves_what_the_scheduler_has_done(
    control_plane: ControlPlane, store: Store, make: Make, tmp_path: Path
) -> None:
    pod_groups.install(control_plane)
    for name in ("n1", "n2"):
        post(control_plane, "/api/v1/nodes", cluster.node(name))
        await store.put(report(name, healthy()))
    groups = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
    post(control_plane, groups, cluster.podgroup("j", 1, {"fault-scheduling": "force"}))
    pods = "/api/v1/namespaces/default/pods"
    post(control_plane, pods, cluster.pod("j-0", "n2", "j", cluster.CHIPS))
    file = tmp_path / "aggregator.toml"
    file.write_text(f"[leader]\nlease_seconds = {LEASE_SECONDS}\n[advice]\nenabled = true\n")

    def new() -> Daemon:
        return make("kubernetes:", control_plane.kubeconfig, "--config", str(file))

    first = new()
    await asyncio.to_thread(first.start)
    first.process.wait_until(lambda: set(reports(first)) == {"upstream", "corrected"}, 20)
    assert is_unknown(first)
    await store.put(report("n2", faulty(update_time=T0 + 1)))
    first.process.wait_until(lambda: waiting(first) == ["default/j"], 20)
    await has_kept(store, '"is_executed":true')

    # It has not seen the fault come: what it knows of the deletion is what was kept.
    second = new()
    await asyncio.to_thread(second.spawn)
    second.process.wait_until(lambda: set(reports(second)) == {"upstream", "corrected"}, 20)
    before = advised(first)
    assert [action for _, action, _ in before["upstream"]] == ["WAIT_COMPLETION"]
    assert advised(second) == before
    await asyncio.to_thread(first.kill)
    second.process.wait_until(lambda: leads(second), 20)
    assert advised(second) == before
    outcomes = second.ask("/api/v1/advice/outcomes")[1]["outcomes"]
    assert sum(outcomes.values()) == 0, "no deletion was foretold again"

    await asyncio.to_thread(second.kill)
    kept = await has_kept(store, '"is_executed":true')
    await store.put(Document(kept.namespace, kept.name, {"state": "{"}, kept.labels))
    third = new()
    await asyncio.to_thread(third.spawn)
    third.process.wait_until(lambda: set(reports(third)) == {"upstream", "corrected"}, 20)
    third.waits_for_text("stored state advice cannot be read, and is begun anew")
    assert is_unknown(third)
    pod_groups.uninstall(control_plane)
