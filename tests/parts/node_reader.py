"""An independent reader of an API server: when nodes beat, who was lost, which faults are shown.

It follows Leases and ConfigMaps by watches of its own, directly, without any code of ours.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any

from tests.parts.deadlines import patience, stand_in_takes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

    from tests.parts.controlplane import ControlPlane

_PREFIX = "npu-vigil-"
_DEVICE = "mindx-dl-deviceinfo-"
_NODE = "mindx-dl-nodeinfo-"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/mindx-dl/leases"
_CONFIG_MAPS = "/api/v1/configmaps"
_AGAIN_SECONDS = 0.1

Fault = tuple[str, str, str]
"""Node, device and code."""


class NodeReader:
    """Reads for as long as the block lasts; times are by ``time.monotonic``."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._tls = ssl.create_default_context(cafile=str(plane.directory / "ca.crt"))
        self._tls.load_cert_chain(plane.directory / "admin.crt", plane.directory / "admin.key")
        self._lock = threading.Lock()
        self._beats: dict[str, list[tuple[float, str]]] = {}
        self._durations: dict[str, list[int]] = {}
        self._lost: dict[str, list[float]] = {}
        self._shown: dict[str, dict[Fault, float]] = {}
        self._vanished: list[tuple[str, Fault]] = []
        self._ends = False
        self._connections: set[http.client.HTTPSConnection] = set()
        self._threads = [
            threading.Thread(target=self._follow, args=(path, take), daemon=True)
            for path, take in ((_LEASES, self._lease), (_CONFIG_MAPS, self._config_map))
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends = True
        for connection in tuple(self._connections):
            with contextlib.suppress(OSError, AttributeError):
                connection.sock.shutdown(2)
        for thread in self._threads:
            thread.join(patience(5))

    def beats(self, node: str) -> list[float]:
        """Return when the heartbeat of a node changed."""
        with self._lock:
            return [at for at, _ in self._beats.get(node, ())]

    def longest_gap(self, node: str, since: float) -> float:
        """Return the longest time without a beat, from the last one before ``since`` until now."""
        times = self.beats(node)
        before = [at for at in times if at < since][-1:]
        marks = [*(before or [since]), *(at for at in times if at >= since), time.monotonic()]
        return max(later - earlier for earlier, later in itertools.pairwise(marks))

    def durations(self, node: str) -> list[int]:
        """Return the durations that the heartbeats of a node announced, in seconds."""
        with self._lock:
            return list(self._durations.get(node, ()))

    @property
    def lost(self) -> dict[str, list[float]]:
        """Return the nodes that were published as lost, each with the times."""
        with self._lock:
            return {node: list(times) for node, times in self._lost.items()}

    @property
    def vanished(self) -> list[tuple[str, Fault]]:
        """Return the faults that a document showed and then no longer did."""
        with self._lock:
            return list(self._vanished)

    def shown_at(self, document: str, node: str, device: str, code: str) -> float | None:
        """Return since when a document with this prefix shows a fault; ``None`` if none does."""
        with self._lock:
            found = (
                faults.get((node, device, code))
                for name, faults in self._shown.items()
                if name.startswith(document)
            )
            return next((at for at in found if at is not None), None)

    def _follow(self, path: str, take: Callable[[str, Any], None]) -> None:
        while not self._ends:
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
                listed = self._plane.request("GET", path)
                for item in listed["items"]:
                    take("ADDED", item)
                version = listed["metadata"]["resourceVersion"]
                for event in self._events(f"{path}?watch=1&resourceVersion={version}"):
                    if event["type"] == "ERROR":
                        break
                    take(event["type"], event["object"])
            stand_in_takes(_AGAIN_SECONDS)

    def _events(self, path: str) -> Iterator[Any]:
        connection = http.client.HTTPSConnection("127.0.0.1", self._plane.port, context=self._tls)
        self._connections.add(connection)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            while line := response.readline():
                yield json.loads(line)
        finally:
            self._connections.discard(connection)
            connection.close()

    def _lease(self, kind: str, lease: Any) -> None:
        name = lease["metadata"]["name"]
        renewed = lease["spec"].get("renewTime")
        if kind == "DELETED" or not name.startswith(_PREFIX) or renewed is None:
            return
        node = name.removeprefix(_PREFIX)
        with self._lock:
            known = self._beats.setdefault(node, [])
            if not known or known[-1][1] != renewed:
                known.append((time.monotonic(), renewed))
                duration = int(lease["spec"].get("leaseDurationSeconds", 0))
                self._durations.setdefault(node, []).append(duration)

    def _config_map(self, kind: str, config_map: Any) -> None:
        name = config_map["metadata"]["name"]
        data = {} if kind == "DELETED" else config_map.get("data") or {}
        now = time.monotonic()
        with self._lock:
            if name == "cluster-info-node-cm":
                self._take_nodes(data.get(name) or "{}", now)
            elif name.startswith(("cluster-info-device-", _DEVICE)):
                before, faults = self._shown.get(name, {}), _faults(name, data)
                self._vanished += [(name, fault) for fault in before if fault not in faults]
                self._shown[name] = {fault: before.get(fault, now) for fault in faults}

    def _take_nodes(self, text: str, now: float) -> None:
        for key, entry in json.loads(text).items():
            times = self._lost.get(key.removeprefix(_NODE), [])
            if entry["NodeStatus"] == "UnHealthy" and not entry["FaultDevList"]:
                self._lost.setdefault(key.removeprefix(_NODE), times).append(now)


def _faults(name: str, data: dict[str, str]) -> set[Fault]:
    """Return the faults in a device-info or a cluster-info-device document."""
    if name.startswith(_DEVICE):
        text = data.get("DeviceInfoCfg") or "{}"
        info = json.loads(text).get("DeviceInfo", {})
        entries = {name: info}
    else:
        entries = json.loads(data.get(name) or "{}")
    return {
        (key.removeprefix(_DEVICE), fault["npu_name"], code)
        for key, entry in entries.items()
        for device, text in entry.get("DeviceList", {}).items()
        if device.endswith("-Fault")
        for fault in json.loads(text or "[]")
        for code in fault["fault_code"].split(",")
    }
