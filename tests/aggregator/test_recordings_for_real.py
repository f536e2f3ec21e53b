"""Recordings played with the real process on a real API server end as the replay says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from stores.base import Document
from tests.aggregator.daemon import OUTPUTS
from tests.aggregator.replay import Cluster
from tests.parts.watching import Watching, watching
from tests.vectors import VECTORS

if TYPE_CHECKING:
    from stores.base import Store
    from tests.aggregator.daemon import Daemon


@pytest.mark.parametrize("kind", [pytest.param("kubernetes", marks=pytest.mark.apiserver)])
@pytest.mark.parametrize(
    "recording",
    [
        "a3-super-pod-sixteen-dies",
        "every-fault-level",
        "fault-appears-and-clears",
        "node-info-each-status",
        "one-healthy-node",
        "same-node-in-all-three",
        "three-nodes-one-faulty",
        "wrong-check-code",
    ],
)
async def test_recording(recording: str, store: Store, daemon: Daemon) -> None:
    content = json.loads((VECTORS / f"clusterd/{recording}.json").read_text())
    replay = Cluster(content["unix_ms_at_0"])
    async with watching(store, OUTPUTS) as seen:
        for step in content["steps"]:
            replay.step(step)
            await _do(step, store, daemon)
            await seen.until(lambda seen: _shown(seen) == replay.outputs)


async def _do(step: dict[str, Any], store: Store, daemon: Daemon) -> None:
    if step["do"] == "restart-aggregator":
        daemon.start()
        return
    thing = step["object"]
    if step["do"] == "delete-configmap":
        await store.delete(thing["namespace"], thing["name"])
        return
    assert step["do"] == "put-configmap"
    await store.put(Document(thing["namespace"], thing["name"], thing["data"], thing["labels"]))


def _shown(seen: Watching) -> dict[str, str]:
    return {name: one.data[name] for (_, name), one in seen.documents.items()}
