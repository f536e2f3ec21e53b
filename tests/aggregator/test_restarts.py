"""State that must outlast a restart, where no versions are compared: on a broker and in a
directory.
"""

from __future__ import annotations

import asyncio
import json
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from contract.names import (
    CLUSTER_NAMESPACE,
    PUBLIC_FAULT_LABEL,
    STATE_NAMESPACE,
    STATE_PREFIX,
)
from stores.base import Document, Selection
from tests.aggregator.daemon import values
from tests.aggregator.nodes import healthy, published, report, unhealthy
from tests.parts import deadlines

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from stores.base import Store
    from tests.aggregator.daemon import Daemon
    from tests.parts.broker import Broker

SYSTEM = "cluster-system"
STATISTIC, SEPARATED = "statistic-fault-info", "clusterd-manual-info-cm"
POLICY = """
enabled: true
separate: {fault_window_hours: 24, fault_threshold: 3}
release: {fault_free_hours: 48}
"""


@pytest.fixture(params=["mqtt", "directory"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, None]:
    if request.param == "directory":
        return f"directory:{tmp_path / 'store'}", None
    broker: Broker = request.getfixturevalue("broker")
    return broker.url, None


def message(assertion: str) -> Document:
    """Return a message that a public fault of chip 2 occurs or recovers."""
    now_ms = time.time_ns() // 1_000_000
    fault = {
        "faultId": "link-to-2",
        "faultType": "NPU",
        "faultCode": "220001001",
        "faultTime": now_ms,
        "assertion": assertion,
        "influence": [{"nodeName": "n1", "deviceIds": [2]}],
    }
    reported = {
        "id": f"message-{now_ms}",
        "timestamp": now_ms,
        "version": "1.0",
        "resource": "CCAE",
        "faults": [fault],
    }
    labels = dict([PUBLIC_FAULT_LABEL])
    return Document("default", "network", {"PublicFault": json.dumps(reported)}, labels)


def separated(*chips: str) -> Document:
    """Return ClusterD's document of the separated chips of the node."""
    why = {
        "FaultCode": "80E01801",
        "FaultLevel": "ManuallySeparateNPU",
        "LastSeparateTime": time.time_ns() // 1_000_000,
    }
    reported = {"Total": list(chips), "Detail": {chip: [why] for chip in chips}}
    return Document(SYSTEM, SEPARATED, {"n1": json.dumps(reported)})


async def until(daemon: Daemon, reached: Callable[[], Awaitable[bool]], what: str) -> None:
    await deadlines.until(lambda: reached(), lambda: f"never: {what}\n{daemon.log.read_text()}", 20)


async def test_public_faults_and_separated_chips_survive_a_kill(
    store: Store, daemon: Daemon
) -> None:
    async def shown(chips: str) -> bool:
        value = (await values(store)).get("cluster-info-device-0", "")
        entry = published(value).get("n1")
        return entry is not None and unhealthy(entry) == chips

    async def kept() -> bool:
        documents = await store.list(Selection(namespace=STATE_NAMESPACE))
        texts = [one.data["state"] for one in documents if one.name.startswith(STATE_PREFIX)]
        return any("link-to-2" in text for text in texts) and any("910-5" in text for text in texts)

    async def viewed() -> bool:
        views = [await store.get(SYSTEM, name) for name in (STATISTIC, SEPARATED)]
        return all(view is not None and "n1" in str(view.data) for view in views)

    async def forgotten() -> bool:
        statistic = await store.get(SYSTEM, STATISTIC)
        assert statistic is not None
        return "n1" not in str(statistic.data) and await store.get(SYSTEM, SEPARATED) is None

    policy = {"manually_separate_policy.conf": POLICY}
    await store.put(Document(SYSTEM, "clusterd-config-cm", policy))
    await store.put(separated("Ascend910-5"))
    await store.put(report("n1", healthy()))
    await asyncio.to_thread(daemon.start)
    await store.put(message("occur"))
    await until(daemon, partial(shown, "Ascend910-2,Ascend910-5"), "both are shown")
    await until(daemon, kept, "both are kept")
    await until(daemon, viewed, "both are in ClusterD's documents")
    daemon.kill()
    # Only the persistent state has either.
    await store.delete("default", "network")
    await store.delete(SYSTEM, STATISTIC)
    await store.delete(CLUSTER_NAMESPACE, "cluster-info-device-0")
    await asyncio.to_thread(daemon.start)
    await until(daemon, partial(shown, "Ascend910-2,Ascend910-5"), "both are shown again")
    await until(daemon, viewed, "both are in ClusterD's documents again")
    await store.put(message("recover"))
    await until(daemon, partial(shown, "Ascend910-5"), "the public fault is over")
    await store.put(separated())
    await until(daemon, partial(shown, ""), "the operator has released the other chip")
    await until(daemon, forgotten, "ClusterD's documents say nothing of either")
