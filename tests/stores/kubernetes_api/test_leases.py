"""Heartbeats in Kubernetes: the beat in a Lease, and Leases with anything else."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from contract.documents.write_numbers import KINDS, encode_writes
from contract.errors import StoreConflict, StoreRefused, StoreUnavailable
from contract.refusal import Reason
from stores.address import open_store
from stores.base import Beat
from tests.parts.controlplane import LEASES
from tests.parts.deadlines import patience, until

if TYPE_CHECKING:
    from stores.base import Store
    from tests.parts.controlplane import ControlPlane

pytestmark = pytest.mark.apiserver

AT_MS = 1_800_000_000_123
AT = "2027-01-15T08:00:00.123000Z"


def a_beat(holder: str = "host-a", at_ms: int = AT_MS, interval_seconds: float = 5.0) -> Beat:
    return Beat("node-1", holder, interval_seconds, at_ms)


def lease(plane: ControlPlane, node: str = "node-1") -> dict[str, Any]:
    found: dict[str, Any] = plane.request("GET", f"{LEASES}/npu-vigil-{node}")
    return found


def make(plane: ControlPlane, name: str, spec: dict[str, Any], **annotations: str) -> None:
    """Make a Lease as a stranger who knows the label."""
    plane.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "mindx-dl"}})
    metadata = {
        "name": name,
        "labels": {"npu-vigil/heartbeat": "true"},
        "annotations": {f"npu-vigil/{key}": value for key, value in annotations.items()},
    }
    plane.request("POST", LEASES, {"metadata": metadata, "spec": spec})


async def shown(store: Store, count: int) -> dict[str, Beat]:
    """Return the beats by node, once the cache has so many."""
    beats: tuple[Beat, ...] = ()

    async def are_shown() -> bool:
        nonlocal beats
        beats = await store.beats()
        return len(beats) == count

    await until(are_shown, lambda: f"{count} beats: {beats}")
    return {beat.node: beat for beat in beats}


async def test_a_lease_contains_holder_interval_and_time(
    control_plane: ControlPlane, kubernetes: Store
) -> None:
    await kubernetes.beat(a_beat())
    found = lease(control_plane)
    assert found["metadata"]["labels"] == {"npu-vigil/heartbeat": "true"}
    assert found["metadata"]["annotations"] == {
        "npu-vigil/node": "node-1",
        "npu-vigil/interval-seconds": "5.0",
    }
    assert found["spec"] == {
        "holderIdentity": "host-a",
        "leaseDurationSeconds": 15,
        "renewTime": AT,
        "acquireTime": AT,
        "leaseTransitions": 0,
    }
    assert {entry["manager"] for entry in found["metadata"]["managedFields"]} == {"npu-vigil"}
    await kubernetes.beat(a_beat(interval_seconds=0.7, at_ms=AT_MS + 1000))
    spec = lease(control_plane)["spec"]
    assert spec["leaseDurationSeconds"] == 3  # 2.1, rounded up
    assert spec["renewTime"] == "2027-01-15T08:00:01.123000Z"
    assert (spec["acquireTime"], spec["leaseTransitions"]) == (AT, 0)


async def test_the_key_about_writes_is_an_annotation_of_at_most_160_bytes(
    control_plane: ControlPlane, kubernetes: Store
) -> None:
    await kubernetes.beat(a_beat())
    before = len(json.dumps(lease(control_plane), separators=(",", ":")))
    text = encode_writes(dict.fromkeys(KINDS, -1_764_000_000))
    await kubernetes.beat(msgspec.structs.replace(a_beat(at_ms=AT_MS + 1000), writes=text))
    found = lease(control_plane)
    assert found["metadata"]["annotations"]["npu-vigil/writes"] == text
    assert len("npu-vigil/writes") + len(text) <= 160
    # Of 10,000 Leases 2 MB.
    assert len(json.dumps(found, separators=(",", ":"))) - before <= 200
    await kubernetes.beat(a_beat(at_ms=AT_MS + 2000))
    assert "npu-vigil/writes" not in lease(control_plane)["metadata"]["annotations"]


async def test_a_lease_counts_how_often_it_changed_hands(
    control_plane: ControlPlane, kubernetes: Store
) -> None:
    rival = open_store("kubernetes:", control_plane.kubeconfig)

    async def after(store: Store, holder: str, seconds: int) -> tuple[str, int]:
        await store.beat(a_beat(holder, AT_MS + 1000 * seconds))
        spec = lease(control_plane)["spec"]
        assert spec["holderIdentity"] == holder
        return spec["acquireTime"][17:19], spec["leaseTransitions"]

    assert await after(kubernetes, "host-a", 0) == ("00", 0)
    assert await after(rival, "host-b", 1) == ("01", 1)
    assert await after(rival, "host-b", 2) == ("01", 1)
    # The first does not know yet that it lost the Lease: its next beat finds out.
    with pytest.raises(StoreConflict):
        await kubernetes.beat(a_beat("host-a", AT_MS + 2500))
    assert await after(kubernetes, "host-a", 3) == ("03", 2)
    assert await after(kubernetes, "host-a", 4) == ("03", 2)
    assert await after(rival, "host-c", 5) == ("05", 3)
    # A restarted agent is the same holder.
    await rival.close()
    rival = open_store("kubernetes:", control_plane.kubeconfig)
    assert await after(rival, "host-c", 6) == ("05", 3)
    await rival.close()


async def test_a_lease_that_was_deleted_comes_back(
    control_plane: ControlPlane, kubernetes: Store
) -> None:
    await kubernetes.beat(a_beat())
    control_plane.request("DELETE", f"{LEASES}/npu-vigil-node-1")
    await kubernetes.beat(a_beat(at_ms=AT_MS + 1000))
    spec = lease(control_plane)["spec"]
    assert (spec["acquireTime"], spec["leaseTransitions"]) == ("2027-01-15T08:00:01.123000Z", 0)


async def test_leases_of_others_are_taken_for_what_they_are(
    control_plane: ControlPlane, kubernetes: Store, caplog: pytest.LogCaptureFixture
) -> None:
    good = {"holderIdentity": "x", "leaseDurationSeconds": 15, "renewTime": AT}
    make(control_plane, "npu-vigil-plain", good)
    make(control_plane, "npu-vigil-future", good | {"renewTime": "2999-01-01T00:00:00.000000Z"})
    make(control_plane, "npu-vigil-past", good | {"renewTime": "0001-01-02T00:00:00.000000Z"})
    make(control_plane, "npu-vigil-odd", good, **{"interval-seconds": "nan"})
    make(control_plane, "npu-vigil-exact", good, **{"interval-seconds": "4.5", "node": "exact"})
    make(control_plane, "npu-vigil-nobody", {"renewTime": AT})
    make(control_plane, "npu-vigil-empty", {})
    make(control_plane, "npu-vigil-never", {"holderIdentity": "x", "leaseDurationSeconds": 15})
    make(control_plane, "npu-vigil-endless", {"holderIdentity": "x", "renewTime": AT})
    make(control_plane, "npu-vigil-lies", good, node="another")
    make(control_plane, "stranger", good)
    with caplog.at_level(logging.WARNING):
        beats = await shown(kubernetes, 5)
        assert (await shown(kubernetes, 5)) == beats
    assert beats["plain"] == Beat("plain", "x", 5.0, AT_MS)
    assert beats["odd"] == Beat("odd", "x", 5.0, AT_MS)
    assert beats["exact"] == Beat("exact", "x", 4.5, AT_MS)
    assert beats["future"].beaten_at_ms == 32_472_144_000_000
    assert beats["past"].beaten_at_ms < 0
    for name in ("nobody", "empty", "never", "endless", "lies"):
        assert caplog.text.count(f"Lease mindx-dl/npu-vigil-{name} is left out") == 1
    assert caplog.text.count("Lease mindx-dl/stranger is left out") == 1
    assert await kubernetes.beats("nobody") == ()
    # Whatever it was, the agent of that node makes it its own.
    await kubernetes.beat(Beat("nobody", "host-a", 5.0, AT_MS))
    assert (await shown(kubernetes, 6))["nobody"].holder == "host-a"


async def test_a_lease_that_names_another_node_leaves_the_last_good_beat(
    control_plane: ControlPlane, kubernetes: Store
) -> None:
    first, second = (Beat(node, "host-a", 5.0, AT_MS) for node in ("node-1", "node-2"))
    await kubernetes.beat(first)
    await kubernetes.beat(second)
    assert await shown(kubernetes, 2) == {"node-1": first, "node-2": second}
    foreign = {
        "metadata": {"annotations": {"npu-vigil/node": "node-2"}},
        "spec": {"renewTime": "2030-01-01T00:00:00.000000Z"},
    }
    control_plane.request("PATCH", f"{LEASES}/npu-vigil-node-1", foreign)
    async with asyncio.timeout(patience(10)):
        while kubernetes.refusals.is_empty:
            await kubernetes.beats()
    assert await shown(kubernetes, 2) == {"node-1": first, "node-2": second}
    assert kubernetes.refusals.counts == {Reason.OTHER_NODE: 1}
    assert kubernetes.refusals.now[0].place == "Lease mindx-dl/npu-vigil-node-1"
    control_plane.request("DELETE", f"{LEASES}/npu-vigil-node-1")
    assert await shown(kubernetes, 1) == {"node-2": second}
    assert kubernetes.refusals.is_empty


async def test_one_is_answered_from_the_cache_and_all_only_while_etcd_answers(
    control_plane: ControlPlane, kubernetes: Store
) -> None:
    await kubernetes.beat(a_beat())
    await shown(kubernetes, 1)
    control_plane.pause_etcd()
    try:
        async with asyncio.timeout(patience(3)):
            assert await kubernetes.beats("node-1") == (a_beat(),)
        # The cache has them all, too, but no agent can beat now: silence would mean nothing.
        with pytest.raises((StoreUnavailable, TimeoutError)):
            async with asyncio.timeout(1):
                await kubernetes.beats()
    finally:
        control_plane.resume_etcd()


async def test_missing_rights_are_reported(control_plane: ControlPlane) -> None:
    store = open_store("kubernetes:", control_plane.kubeconfig_of("stranger-token"))
    with pytest.raises(StoreRefused, match="stranger"):
        await store.beat(a_beat())
    with pytest.raises(StoreRefused, match=r"list Leases.*stranger"):
        await store.beats()
    with pytest.raises(StoreRefused, match=r"mindx-dl/npu-vigil-node-1.*stranger"):
        await store.beats("node-1")
    with pytest.raises(StoreRefused, match="stranger"):
        await store.touch("mindx-dl", "one")
    with pytest.raises(StoreRefused, match="stranger"):
        await store.writer("mindx-dl", "one")
    await store.close()
