"""What it costs one aggregator to know the Nodes and pods of a large cluster.

::

    python -m benchmarks.cluster_objects [--nodes 10000] [--pods 20000] [--updates 1000] [--json]

A real API server with Nodes of about 8 KB and pods of which each has four chips and a job. A child
follows them as the aggregator does: how long the first lists take it, what it has in memory then,
and what heartbeats cost it, which are updates of a Node's status without news.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from aggregator.inputs.cluster_state import ClusterState
from aggregator.inputs.cluster_watch import follow
from service.stalls import Stalls
from stores.address import open_store
from stores.kubernetes_api import wire
from stores.kubernetes_api.client.connection import ApiConnection
from tests.parts.controlplane import ControlPlane

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

_AT_ONCE = 24
_IMAGES = 30
_CREATED = (200, 201)
_SETTLE_SECONDS = 3.0


def a_node(number: int) -> tuple[str, dict[str, Any]]:
    """Return name and object of a Node as a kubelet and the device plugin make it."""
    name = f"node-{number:05}"
    images = [
        {
            "names": [
                f"registry.example/team/image-{index}@sha256:{index:064x}",
                f"registry.example/team/image-{index}:v1.{index}",
            ],
            "sizeBytes": 1_000_000_000 + index,
        }
        for index in range(_IMAGES)
    ]
    annotations = {
        "product-serial-number": f"2102313{number:08}",
        "baseDeviceInfos": json.dumps(
            {f"Ascend910-{chip}": {"IP": f"10.8.{chip}.1", "SuperDeviceID": 0} for chip in range(8)}
        ),
        "node.alpha.kubernetes.io/ttl": "0",
    }
    labels = {
        "accelerator": "huawei-Ascend910",
        "accelerator-type": "module-910b-8",
        "host-arch": "huawei-arm",
        "kubernetes.io/hostname": name,
        "workerselector": "dls-worker-node",
    }
    return name, {
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "status": {**heartbeat(0), "addresses": _addresses(number), "images": images},
    }


def heartbeat(count: int) -> dict[str, Any]:
    """Return the conditions of a Node that is ready; only one time differs each time."""
    at = f"2026-01-01T{count // 3600 % 24:02}:{count // 60 % 60:02}:{count % 60:02}Z"
    return {
        "conditions": [
            {
                "type": kind,
                "status": str(kind == "Ready"),
                "reason": f"Kubelet{kind}",
                "message": f"kubelet reports {kind} as it always does",
                "lastHeartbeatTime": at,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
        ]
    }


def _addresses(number: int) -> list[dict[str, str]]:
    address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
    return [
        {"type": "InternalIP", "address": address},
        {"type": "Hostname", "address": f"node-{number:05}"},
    ]


def a_pod(number: int, nodes: int) -> dict[str, Any]:
    """Return one of two pods of a node, of a job of sixteen pods."""
    node, half, job = number % nodes, number // nodes % 2, number // 16
    chips = [f"Ascend910-{half * 4 + chip}" for chip in range(4)]
    devices = [
        {"device_id": chip.partition("-")[2], "device_ip": f"10.9.{half}.{index}"}
        for index, chip in enumerate(chips)
    ]
    configuration = {"pod_name": f"train-{number}", "server_id": "10.0.0.1", "devices": devices}
    owner = {
        "apiVersion": "mindxdl.gitee.com/v1",
        "kind": "AscendJob",
        "name": f"train-{job}",
        "uid": f"00000000-0000-4000-8000-{job:012}",
        "controller": True,
    }
    container = {
        "name": "ascend",
        "image": "registry.example/team/train:v1",
        "env": [{"name": f"VARIABLE_{index}", "value": "x" * 20} for index in range(30)],
        "volumeMounts": [{"name": f"v{index}", "mountPath": f"/v{index}"} for index in range(8)],
    }
    return {
        "metadata": {
            "name": f"train-{number}",
            "labels": {"app": "pytorch", "framework": "pytorch", "job-name": f"train-{job}"},
            "annotations": {
                "huawei.com/AscendReal": ",".join(chips),
                "hccl/rankIndex": str(number % 16),
                "scheduling.k8s.io/group-name": f"pg-{job}",
                "ascend.kubectl.kubernetes.io/ascend-910-configuration": json.dumps(configuration),
            },
            "ownerReferences": [owner],
        },
        "spec": {
            "nodeName": f"node-{node:05}",
            "containers": [container],
            "volumes": [{"name": f"v{index}", "emptyDir": {}} for index in range(8)],
        },
    }


async def in_turn(jobs: Iterable[Callable[[], Awaitable[object]]]) -> float:
    """Do all of them, some at once; seconds that it took."""
    left = iter(jobs)

    async def work() -> None:
        for job in left:
            await job()

    begun = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(_AT_ONCE):
            tasks.create_task(work())
    return time.monotonic() - begun


class Cluster:
    """Fills an API server."""

    def __init__(self, connection: ApiConnection) -> None:
        self._connection = connection

    async def _write(
        self, method: str, path: str, body: object, headers: dict[str, str] | None = None
    ) -> None:
        answer = await self._connection.request(
            method, path, json.dumps(body).encode(), wire.ONLY_METADATA | (headers or {})
        )
        assert answer.status in _CREATED, answer.body[:300]

    async def make_node(self, number: int) -> None:
        """Create a Node."""
        await self._write("POST", "/api/v1/nodes", a_node(number)[1])

    async def make_pod(self, number: int, nodes: int) -> None:
        """Create a pod that is on its node already."""
        await self._write("POST", "/api/v1/namespaces/default/pods", a_pod(number, nodes))

    async def beat(self, number: int, count: int) -> None:
        """Update a Node's status, as its kubelet does."""
        path = f"/api/v1/nodes/{a_node(number)[0]}/status"
        await self._write("PATCH", path, {"status": heartbeat(count)}, wire.MERGE_PATCH_HEADERS)

    async def node_bytes(self) -> int:
        """Return how large a Node is that a watch shows."""
        name, _ = a_node(0)
        return len((await self._connection.request("GET", f"/api/v1/nodes/{name}")).body)


class Child:
    """The process that follows."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ask(self) -> dict[str, Any]:
        """Return its next figures: of its lists first, then of itself."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        answer: dict[str, Any] = json.loads(await self._process.stdout.readline())
        return answer

    async def end(self) -> None:
        """End it."""
        self._process.kill()
        await self._process.wait()


async def measured(plane: ControlPlane, nodes: int, pods: int, updates: int) -> dict[str, Any]:
    """Fill the API server, have it followed, and let kubelets beat."""
    connection = ApiConnection(str(plane.kubeconfig))
    cluster = Cluster(connection)
    await in_turn(partial(cluster.make_node, number) for number in range(nodes))
    await in_turn(partial(cluster.make_pod, number, nodes) for number in range(pods))
    child = Child(
        await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-m",
                "benchmarks.cluster_objects",
                "--follow",
                str(plane.kubeconfig),
            ),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 20,
        )
    )
    listed = await child.ask()
    await asyncio.sleep(_SETTLE_SECONDS)
    before = await child.ask()
    seconds = await in_turn(
        partial(cluster.beat, number % nodes, 1 + number // nodes) for number in range(updates)
    )
    await asyncio.sleep(_SETTLE_SECONDS)
    after = await child.ask()
    result = {
        "nodes": nodes,
        "pods": pods,
        "node_bytes": await cluster.node_bytes(),
        "listed_seconds": listed["seconds"],
        "listed_cpu_seconds": listed["cpu_seconds"],
        "memory_before_mib": listed["memory_before_mib"],
        "memory_mib": before["memory_mib"],
        "memory_peak_mib": before["peak_mib"],
        "updates_per_second": round(updates / seconds),
        "cpu_seconds_per_1000_updates": round(
            (after["cpu_seconds"] - before["cpu_seconds"]) / updates * 1000, 3
        ),
        "told_by_updates": after["told"] - before["told"],
        "known": after["known"],
    }
    await child.end()
    await connection.close()
    return result


async def followed(kubeconfig: str) -> None:
    """Run the child: report what its lists cost, then, for each line that it reads, its figures."""
    store = open_store("kubernetes:", Path(kubeconfig))
    cluster_state, items, more = ClusterState([True]), [0], asyncio.Event()
    process = psutil.Process()

    def take(_: frozenset[str] | None) -> None:
        items[0] += 1
        more.set()

    def cpu() -> float:
        times = process.cpu_times()
        return float(times.user + times.system)

    def mib(count: int) -> float:
        return round(count / 2**20, 1)

    # What only imports and the first connection cost is no cost of the world.
    await store.get("default", "nothing")
    memory_before = mib(process.memory_info().rss)
    begun, cpu_before = time.monotonic(), cpu()
    task = asyncio.create_task(follow(cluster_state, 0, store, take, Stalls()))
    while not (cluster_state.nodes_known and cluster_state.answered(0)):
        more.clear()
        await more.wait()
    listed = {
        "seconds": round(time.monotonic() - begun, 2),
        "cpu_seconds": round(cpu() - cpu_before, 2),
        "memory_before_mib": memory_before,
    }
    await asyncio.to_thread(sys.stdin.readline)
    print(json.dumps(listed), flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        gc.collect()
        known = [
            len(cache.items)
            for cache in (cluster_state.nodes_of_store(0), cluster_state.pods_of(0))
        ]
        now = {
            "cpu_seconds": cpu(),
            "memory_mib": mib(process.memory_info().rss),
            "peak_mib": _peak_mib(),
            "told": items[0],
            "known": [*known, len(cluster_state.jobs())],
        }
        print(json.dumps(now), flush=True)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def _peak_mib() -> float:
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return round(int(line.split()[1]) / 1024, 1)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What it costs to know a large cluster.")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--updates", type=int, default=1_000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--follow", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.follow:
        asyncio.run(followed(options.follow))
        return 0
    with tempfile.TemporaryDirectory() as directory, ControlPlane(Path(directory)) as plane:
        result = asyncio.run(measured(plane, options.nodes, options.pods, options.updates))
    if options.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:>30}  {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
