"""The recordings of Volcano as JSON Lines: a dump leads to the decisions of the objects themselves.

A line has one version of each ConfigMap, the last before its session.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from advisor.options import Profile
from tests.advisor.player import RECORDINGS, play, recorded
from tests.advisor.recordings import played
from vigil.advise.run import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_KINDS = {
    "nodes": ("v1", "Node"),
    "pods": ("v1", "Pod"),
    "podgroups": ("scheduling.volcano.sh/v1beta1", "PodGroup"),
    "vcjobs": ("batch.volcano.sh/v1alpha1", "Job"),
    "replica_sets": ("apps/v1", "ReplicaSet"),
}


def _scheduler(arguments: dict[str, str]) -> dict[str, Any]:
    """Return the ConfigMap of the scheduler with these switches; JSON is YAML."""
    configuration = {"configurations": [{"name": "init-params", "arguments": arguments}]}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": "volcano-system", "name": "volcano-scheduler-configmap"},
        "data": {"volcano-scheduler.conf": json.dumps(configuration)},
    }


def _lines(recording: dict[str, Any]) -> Iterator[str]:
    """Yield the sessions of a recording."""
    versions: dict[int, str] = {}
    kept: list[Any] = []
    for session in play(recording):
        items = [_scheduler(recording["init_params"])]
        for name, (version, kind) in _KINDS.items():
            items += ({"apiVersion": version, "kind": kind, **o} for o in session.objects[name])
        present: dict[tuple[str, str], Any] = {}
        for made in session.configmaps:
            if id(made) not in versions:
                versions[id(made)] = str(len(versions) + 1)
                kept.append(made)  # Another one must not get its id.
            present[made["metadata"]["namespace"], made["metadata"]["name"]] = made
        # A dump is in no order; the versions are.
        for made in reversed(list(present.values())):
            metadata = {**made["metadata"], "resourceVersion": versions[id(made)]}
            items.append({"apiVersion": "v1", "kind": "ConfigMap", **made, "metadata": metadata})
        now_ms = recording["unix_ms_at_0"] + session.at_ms
        yield json.dumps({"now_ms": now_ms, "first_session": session.first, "items": items})


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDINGS)
def test_a_dump_leads_to_the_same_decisions(name: str, tmp_path: Path) -> None:
    file = tmp_path / "sessions.jsonl"
    file.write_text("\n".join(_lines(recorded(name))))
    found = [pair.report for _, pair in run([str(file)], [Profile.UPSTREAM], (), None)]
    expected = [one.report for one in played(name)]
    assert [one.deletions for one in found] == [one.deletions for one in expected]
    assert [one.placement for one in found] == [one.placement for one in expected]
    assert [one.gangs for one in found] == [one.gangs for one in expected]
