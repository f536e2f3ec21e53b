"""When a client that resumes a job on ``normal`` may do so: the aggregator in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster import wire
from tests.cluster.playing import cluster
from tests.contract.documents.node_documents import config, fault

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.playing import Cluster

pytestmark = pytest.mark.looptime(resolution=2**-20)

JOB = "11111111-1111-4111-8111-111111111111"
OWNER = {
    "apiVersion": "mindxdl.gitee.com/v1",
    "kind": "AscendJob",
    "name": "train",
    "uid": JOB,
    "controller": True,
}


async def pod(site: Cluster, name: str, node: str, rank: int) -> None:
    """Start a pod of the job with chips 0 and 1."""
    annotations = {"huawei.com/AscendReal": "Ascend910-0,Ascend910-1", "hccl/rankIndex": str(rank)}
    thing = {
        "namespace": "default",
        "name": name,
        "metadata": {"annotations": annotations, "ownerReferences": [OWNER]},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "x"}]},
        "status": {"phase": "Running"},
    }
    await site.do({"do": "put-pod", "object": thing})


async def delete(site: Cluster, kind: str, name: str) -> None:
    """Delete an object, and give the aggregator time."""
    await site.do({"do": f"delete-{kind}", "object": {"namespace": "default", "name": name}})
    await site.pass_time(2)


async def faulty_job(site: Cluster) -> None:
    """Write a job of two pods, one of them on a faulty chip, with a client that subscribes."""
    for number in range(3):
        await site.node(f"n{number}", serial_number=f"SN-{number}")
        await site.device(f"n{number}", config())
    group: dict[str, Any] = {
        "namespace": "default",
        "name": "pg-train",
        "metadata": {"ownerReferences": [OWNER]},
        "spec": {"minMember": 2},
        "status": {"phase": "Running"},
    }
    await site.do({"do": "put-podgroup", "object": group})
    for rank, node in enumerate(("n0", "n1")):
        await pod(site, f"train-{rank}", node, rank)
    site.start()
    await site.pass_time(2)
    client = {"jobId": JOB, "role": "test"}
    await site.do({"do": "subscribe-fault-stream", "object": client})
    one = fault(1, "RestartNPU", "80E18402")
    await site.device("n0", config([one], unhealthy=(1,), update_time=1_760_000_010), 2)
    assert pushed(site) == ["fault"]


def pushed(site: Cluster) -> list[str]:
    """Return the types of the signals that the client received."""
    method = wire.SUBSCRIBE.lstrip("/")
    return [one.message["signalType"] for one in site.played.sent if one.method == method]


@pytest.mark.slow
async def test_normal_comes_when_the_replacement_has_its_chips(tmp_path: Path) -> None:
    async with cluster(tmp_path) as site:
        await faulty_job(site)
        await delete(site, "pod", "train-0")
        await site.pass_time(60)
        assert pushed(site) == ["fault"]
        await pod(site, "train-0-again", "n2", 0)
        await site.pass_time(2)
        assert pushed(site) == ["fault", "normal"]


async def test_normal_comes_when_the_job_is_deleted_after_its_pods(tmp_path: Path) -> None:
    async with cluster(tmp_path) as site:
        await faulty_job(site)
        for rank in (0, 1):
            await delete(site, "pod", f"train-{rank}")
        assert pushed(site) == ["fault"]
        await delete(site, "podgroup", "pg-train")
        assert pushed(site) == ["fault", "normal"]


@pytest.mark.slow
async def test_normal_comes_when_the_place_recovers(tmp_path: Path) -> None:
    async with cluster(tmp_path) as site:
        await faulty_job(site)
        await delete(site, "pod", "train-0")
        await site.device("n0", config(update_time=1_760_000_020), 2)
        assert pushed(site) == ["fault", "normal"]
