"""The benchmark of what it costs to know a cluster, with a small one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks import cluster_objects

if TYPE_CHECKING:
    from tests.parts.controlplane import ControlPlane


@pytest.mark.apiserver
async def test_a_small_cluster_is_known_and_heartbeats_prove_nothing(
    control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_objects, "_SETTLE_SECONDS", 0.5)
    result = await cluster_objects.measured(control_plane, nodes=6, pods=17, updates=12)
    assert result["known"] == [6, 17, 2]
    assert result["told_by_updates"] == 0
    assert 7_000 < result["node_bytes"] < 10_000
    assert result["memory_mib"] > 10
