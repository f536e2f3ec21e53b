"""How long a fault takes to cluster-info while the aggregator's watches show nothing.

::

    python -m benchmarks.hidden_faults [--nodes 1000] [--times 3] [--json]

A real API server, a real ``vigil aggregator`` behind a proxy, and as many nodes as asked for, which
beat every 5 s and name their last writes. With watches that work, nothing may be read by name. Then
the watches live and deliver nothing, and one node, ten and all of them have a fault; at last all
connections that there are die without a sign, and one node has a fault. Ends with 1 when anything
took longer than 15 s, or was read although it was shown.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.scale_documents import node_names
from benchmarks.scale_load import Load, Pipe
from contract.documents.cluster_info import cluster_device_index
from stores.address import open_store
from tests.aggregator.daemon import OUTPUTS, Daemon
from tests.aggregator.nodes import published, unhealthy
from tests.parts.api_proxy import ApiProxy, Rule
from tests.parts.controlplane import ControlPlane

if TYPE_CHECKING:
    from stores.base import Store

_CHIPS = 8
_PIPES = 8
_BEAT_SECONDS = 5.0
_LONGEST_SECONDS = 15.0
_HEALTHY_SECONDS = 30.0
_PATIENCE_SECONDS = 90.0
_LISTS = Rule("list", "configmaps")


def _reads(proxy: ApiProxy, since: float) -> int:
    """Return how many lists of device-info, and reads of single ones, the aggregator has
    requested.
    """
    return sum(one.namespace == "kube-system" for one in proxy.requests(_LISTS, since))


async def _shown(store: Store, nodes: list[str], chip: int) -> float:
    """Wait until all of these have this unhealthy chip in cluster-info; when."""
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while True:
            entries: dict[str, Any] = {}
            for document in await store.list(OUTPUTS):
                if cluster_device_index(document.name) is not None:
                    entries |= published(document.data[document.name])
            if all(f"Ascend910-{chip}" in unhealthy(entries[node]).split(",") for node in nodes):
                return time.monotonic()
            await asyncio.sleep(0.1)


async def measure(directory: Path, count: int, times: int) -> dict[str, Any]:
    """Run it all; what was seen, in seconds and reads."""
    names = node_names(count)
    found: dict[str, Any] = {"nodes": count}
    with ControlPlane(directory) as plane, ApiProxy(plane) as proxy:
        for namespace in ("mindx-dl", "kube-system"):
            plane.ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        tls = ssl.create_default_context(cafile=str(directory / "ca.crt"))
        tls.load_cert_chain(directory / "admin.crt", directory / "admin.key")
        load = Load([Pipe(plane.port, tls) for _ in range(_PIPES)], names, _CHIPS)
        await load.do({"do": "fill"})
        await load.do({"do": "leases", "seconds": _BEAT_SECONDS})
        await load.do({"do": "beat", "seconds": _BEAT_SECONDS})
        options = ("--store", "kubernetes:", "--kubeconfig", str(proxy.kubeconfig))
        daemon = Daemon(directory / "aggregator", *options)
        store = open_store("kubernetes:", plane.kubeconfig)

        async def until_shown(nodes: list[str], chip: int) -> float:
            began = time.monotonic()
            await load.do({"do": "storm", "nodes": nodes, "faulty": chip})
            return round(await _shown(store, nodes, chip) - began, 2)

        try:
            await asyncio.to_thread(daemon.start)
            since = time.monotonic()
            found["shown_by_watch_seconds"] = await until_shown(names[: count // 2], 0)
            await asyncio.sleep(_HEALTHY_SECONDS)
            found["reads_while_watches_work"] = _reads(proxy, since)
            proxy.silence(Rule(resource="configmaps"))
            for label, some in (("one", names[:1]), ("ten", names[:10]), ("all", names)):
                found[label] = []
                for chip in range(1, times + 1):
                    since = time.monotonic()
                    seconds = await until_shown(some, chip)
                    await asyncio.sleep(_BEAT_SECONDS)
                    found[label].append({"seconds": seconds, "reads": _reads(proxy, since)})
            proxy.relent()
            found["frozen"] = []
            for chip in range(times):
                await asyncio.sleep(10)
                proxy.freeze_old()
                found["frozen"].append({"seconds": await until_shown(names[:1], 7 - chip % 2)})
            found["metrics"] = {
                result: daemon.metric(f'npu_vigil_missed_write_reads_total{{result="{result}"')
                for result in ("missed", "unfounded", "failed")
            }
        finally:
            daemon.stop()
            await load.do({"do": "quiet"})
            await store.close()
    return found


def is_good(found: dict[str, Any]) -> bool:
    """Return whether nothing was hidden for too long, and nothing read that was shown."""
    rows = [row for label in ("one", "ten", "all", "frozen") for row in found[label]]
    is_quick = all(row["seconds"] <= _LONGEST_SECONDS for row in rows)
    return is_quick and not found["reads_while_watches_work"]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = asyncio.run(measure(Path(directory), options.nodes, options.times))
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name}: {value}")
    sys.exit(0 if is_good(found) else 1)


if __name__ == "__main__":
    main()
