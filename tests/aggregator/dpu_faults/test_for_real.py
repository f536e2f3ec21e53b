"""A real aggregator reads documents of RDMA plugins from a real API server."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from contract.documents.dpu_info import DpuFault
from tests.aggregator.daemon import OUTPUTS, entries
from tests.aggregator.dpu_faults.scene import CARD_DROP, LANE_DOWN, PORT_DOWN, dpu_document
from tests.aggregator.nodes import T0, healthy, report, unhealthy
from tests.parts.verbs import run_verb
from tests.parts.watching import watching

if TYPE_CHECKING:
    from collections.abc import Callable

    from stores.base import Document, Store
    from tests.aggregator.conftest import Make
    from tests.aggregator.daemon import Daemon
    from tests.parts.controlplane import ControlPlane

pytestmark = pytest.mark.apiserver


@pytest.fixture
def kind() -> str:
    return "kubernetes"


def of_now(node: str, *faults: DpuFault, age_seconds: float = 0) -> Document:
    return dpu_document(node, *faults, at=time.time() - T0 - age_seconds)


def until(daemon: Daemon, condition: Callable[[], bool]) -> None:
    daemon.process.wait_until(condition, 20)


def rows(daemon: Daemon) -> list[dict[str, Any]]:
    found = daemon.ask("/api/v1/faults")[1]["faults"]
    return [one for one in found if one["kind"] == "dpu"]


async def test_faults_are_shown_and_nothing_is_published(
    control_plane: ControlPlane, store: Store, make: Make
) -> None:
    daemon = make("kubernetes:", control_plane.kubeconfig)
    await store.put(report("n1", healthy()))
    await store.put(of_now("n1", PORT_DOWN, CARD_DROP))
    await store.put(of_now("n0", PORT_DOWN))  # there is no such node
    await asyncio.to_thread(daemon.start)
    until(daemon, lambda: len(rows(daemon)) == 2)
    drop, port = rows(daemon)
    assert (drop["node"], drop["subject"], drop["level"]) == ("n1", "DPU cards", "SeparateDPU")
    assert (port["subject"], port["code"], port["name"]) == (
        "HCA mlx5_0",
        "21000024",
        "hca_port_down",
    )
    assert port["since_ms"] == PORT_DOWN.since_ms
    explained = daemon.ask("/api/v1/nodes/n1")[1]
    (about,) = [one for one in explained["dpu_faults"] if one["code"] == "21000024"]
    assert about["description"] == "port is down"
    assert "dpu_faults.publish is off" in about["because"]
    assert explained["public_faults"] == []
    series = 'npu_vigil_cluster_dpu_faults{code="21000024",level="SeparateDPU"}'
    assert daemon.metric(series) == 1
    assert daemon.metric('npu_vigil_dpu_documents{state="without_node"}') == 1
    assert daemon.metric("npu_vigil_dpu_watch_connected") == 1
    async with watching(store, OUTPUTS) as seen:
        await seen.until(lambda seen: unhealthy(entries(seen)["n1"]) == "")
    await store.put(of_now("n1", DpuFault("mlx5_0", "1", "Strange")))
    strange = 'npu_vigil_cluster_dpu_faults{code="other",level="other"}'
    until(daemon, lambda: daemon.metric(strange) == 1)
    await store.put(of_now("n1", LANE_DOWN))
    until(daemon, lambda: [one["code"] for one in rows(daemon)] == ["21000023"])

    def history() -> list[tuple[str, str, str | None]]:
        found = daemon.ask("/api/v1/history?node=n1")[1]["events"]
        changes = [one["published"] for one in found if one.get("published")]
        return [(one["subject"], one["code"], one.get("level")) for one in changes]

    newest = ("HCA mlx5_1", "21000023", "SubHealthFault")
    until(daemon, lambda: newest in history())
    assert ("HCA mlx5_0", "21000024", "SeparateDPU") in history()
    assert ("HCA mlx5_0", "21000024", None) in history()


async def test_a_silent_plugin_is_blind_and_its_faults_stay(
    control_plane: ControlPlane, store: Store, make: Make
) -> None:
    daemon = make("kubernetes:", control_plane.kubeconfig)
    await store.put(report("n1", healthy()))
    await store.put(of_now("n1", PORT_DOWN, age_seconds=15 * 60 - 3))
    await asyncio.to_thread(daemon.start)
    until(daemon, lambda: len(rows(daemon)) == 1)

    def blind() -> list[dict[str, Any]]:
        found = daemon.node("n1")["blind"] or []
        return [one for one in found if one["source"] == "dpuinfo"]

    until(daemon, lambda: bool(blind()))
    assert "has not been written for 15 minutes" in blind()[0]["reason"]
    assert daemon.metric('npu_vigil_dpu_documents{state="blind"}') == 1
    assert [one["code"] for one in rows(daemon)] == ["21000024"]
    broken = msgspec.structs.replace(of_now("n1"), data={"DpuInfoCfg": "{"})
    await store.put(broken)
    until(daemon, lambda: "is not JSON" in blind()[0]["reason"])
    assert [one["code"] for one in rows(daemon)] == ["21000024"]
    await store.put(of_now("n1"))
    until(daemon, lambda: not blind() and not rows(daemon))


async def test_by_the_option_chips_are_separated_and_released(
    control_plane: ControlPlane, store: Store, make: Make
) -> None:
    daemon = make("kubernetes:", control_plane.kubeconfig)
    daemon.environment["VIGIL_DPU_FAULTS_PUBLISH"] = "true"
    daemon.environment["VIGIL_DPU_FAULTS_CHIPS"] = "mlx5_0=2 3"
    await store.put(report("n1", healthy()))
    await store.put(of_now("n1", PORT_DOWN, LANE_DOWN))
    await asyncio.to_thread(daemon.start)
    async with watching(store, OUTPUTS) as seen:
        await seen.until(lambda seen: unhealthy(entries(seen)["n1"]) == "Ascend910-2,Ascend910-3")
        text = str(entries(seen)["n1"])
        assert "021000024" in text
        assert "021000023" in text
        daemon.kill()
        await store.put(of_now("n1", LANE_DOWN))
        await asyncio.to_thread(daemon.start)
        await seen.until(lambda seen: unhealthy(entries(seen)["n1"]) == "")
        # Without the option what was published ends.
        assert "021000023" in str(entries(seen)["n1"])
        daemon.stop()
        del daemon.environment["VIGIL_DPU_FAULTS_PUBLISH"]
        await asyncio.to_thread(daemon.start)
        await seen.until(lambda seen: "021000023" not in str(entries(seen)["n1"]))


async def test_people_see_what_an_emulated_plugin_reports(
    control_plane: ControlPlane, store: Store, make: Make
) -> None:
    where = ("--kubeconfig", str(control_plane.kubeconfig))
    daemon = make("kubernetes:", control_plane.kubeconfig)
    await store.put(report("n1", healthy()))
    await asyncio.to_thread(daemon.start)

    async def simulate(*words: str, status: int = 0) -> str:
        ended, _, errors = await asyncio.to_thread(run_verb, "simulate", "dpu", *words, *where)
        assert ended == status, errors
        return errors

    async def shown(*words: str) -> str:
        _, output, _ = await asyncio.to_thread(run_verb, *words, "--server", daemon.url)
        return output.decode()

    await simulate("occur", "n1", "21000024", "--hca", "mlx5_3")
    await simulate("occur", "n1", "22000026", "--hca", "")
    until(daemon, lambda: len(rows(daemon)) == 2)
    faults = await shown("faults")
    assert "HCA mlx5_3" in faults
    assert "hca_port_down" in faults
    explained = await shown("explain", "n1")
    assert "dpu_card_drop" in explained
    assert "raised by vigil simulate" in explained
    assert "dpu_faults.publish is off" in explained
    assert "hca_port_down" in await shown("explain", "021000024")
    await simulate("recover", "n1", "21000024", "--hca", "mlx5_3")
    until(daemon, lambda: len(rows(daemon)) == 1)
    # It is written a second later.
    until(daemon, lambda: "mlx5_3" in str(daemon.ask("/api/v1/history?node=n1")[1]))
    timeline = await shown("timeline", "n1")
    assert "HCA mlx5_3" in timeline
    assert "21000024" in timeline
    assert "'1' is not a code of the plugin" in await simulate("occur", "n1", "1", status=2)
