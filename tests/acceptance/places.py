"""Stores as a stranger sees them; every document that is seen is checked."""

from __future__ import annotations

import json
import ssl
import threading
from http.client import HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, Any, Protocol

from tests.acceptance.reading import (
    CLUSTER_NODE,
    CLUSTER_PREFIX,
    CLUSTER_SWITCH_PREFIX,
    DEVICE_PREFIX,
    NODE_PREFIX,
    SWITCH_PREFIX,
    cluster_health,
    cluster_info,
    device_info,
    node_info,
    switch_info,
)
from tests.parts import places
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from typing import Self

    from tests.acceptance.reading import Health, Shown
    from tests.parts.controlplane import ControlPlane

NODES, CLUSTER = "kube-system", "mindx-dl"


class Place(places.Place, Protocol):
    """A store; what it has is decoded by the reader of these tests."""

    def device_info(self, node: str) -> Shown | None:
        """Return the decoded device-info of a node; ``None`` if there is none."""
        data = self.read(DEVICE_PREFIX + node)
        return None if data is None or not data.get("DeviceInfoCfg") else device_info(data)

    def cluster_info(self) -> dict[str, Shown]:
        """Return what the aggregator publishes; empty for nothing."""
        data = self.read(CLUSTER_PREFIX + "0")
        return {} if data is None else cluster_info(data)

    def node_info(self, node: str) -> Health | None:
        """Return the decoded node-info of a node; ``None`` if there is none."""
        data = self.read(NODE_PREFIX + node)
        return None if data is None else node_info(data)

    def switch_info(self, node: str) -> Health | None:
        """Return what a node publishes about its switches."""
        data = self.read(DEVICE_PREFIX + node)
        return None if data is None or "SwitchInfoCfg" not in data else switch_info(data)

    def cluster_nodes(self) -> dict[str, Health]:
        """Return what the aggregator publishes about servers."""
        return self._cluster(CLUSTER_NODE, NODE_PREFIX)

    def cluster_switches(self) -> dict[str, Health]:
        """Return what the aggregator publishes about switches."""
        return self._cluster(f"{CLUSTER_SWITCH_PREFIX}0", SWITCH_PREFIX)

    def _cluster(self, name: str, prefix: str) -> dict[str, Health]:
        data = self.read(name)
        return {} if data is None else cluster_health(data[name], prefix)


class Folder(places.Folder, Place):
    """A directory store."""


class Cluster(places.Cluster, Place):
    """A real API server."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane)
        plane.ask("POST", "/api/v1/namespaces", {"metadata": {"name": CLUSTER}})


class History:
    """Every version of all documents of a namespace, by a watch of its own.

    On leaving, ``UpdateTime`` of each node must have grown with each version that differs.
    """

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.versions: dict[str, list[Shown]] = {}
        context = ssl.create_default_context(cafile=str(plane.directory / "ca.crt"))
        context.load_cert_chain(plane.directory / "admin.crt", plane.directory / "admin.key")
        self._plane = plane
        self._path = f"/api/v1/namespaces/{namespace}/configmaps"
        self._context = context
        self._port = plane.port
        version = plane.request("GET", self._path)["metadata"]["resourceVersion"]
        self._version = int(version)
        self._ends = threading.Event()
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._follow, name="history")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        if self._problem is not None:
            raise self._problem
        for node, versions in self.versions.items():
            times = [shown.update_time for shown in versions]
            assert times == sorted(set(times)), f"UpdateTime of {node}: {times}"

    def _follow(self) -> None:
        while not self._ends.is_set():
            try:
                self._watch()
            except (OSError, HTTPException):
                self._ends.wait(0.05)
            except BaseException as error:
                self._problem = error
                return

    def _watch(self) -> None:
        # A server that has just come back answers late. What is shown for 5 s must not be missed.
        seconds = patience(5)
        connection = HTTPSConnection(
            "127.0.0.1", self._port, timeout=seconds, context=self._context
        )
        try:
            query = f"?watch=1&resourceVersion={self._version}"
            connection.request("GET", self._path + query)
            reading = connection.sock
            response = connection.getresponse()
            reading.settimeout(0.5)  # of one line, so that the end is noticed
            while not self._ends.is_set() and (line := response.readline()):
                self._take(json.loads(line))
        finally:
            connection.close()

    def _list(self) -> None:
        listed = self._plane.request("GET", self._path)
        for item in listed["items"]:
            self._take({"type": "MODIFIED", "object": item})
        self._version = int(listed["metadata"]["resourceVersion"])

    def _take(self, event: dict[str, Any]) -> None:
        item = event["object"]
        if event["type"] == "ERROR":
            # A server that has just come back, perhaps without the versions before it.
            if item["code"] == 410:
                self._list()
            raise OSError(item["message"])
        name = item["metadata"]["name"]
        self._version = int(item["metadata"]["resourceVersion"])
        if event["type"] == "DELETED" or not name.startswith((DEVICE_PREFIX, CLUSTER_PREFIX)):
            return
        for node, shown in _entries(name, item["data"]).items():
            versions = self.versions.setdefault(node, [])
            if not versions or versions[-1] != shown:
                versions.append(shown)


def _entries(name: str, data: dict[str, str]) -> dict[str, Shown]:
    if name.startswith(DEVICE_PREFIX):
        return {name.removeprefix(DEVICE_PREFIX): device_info(data)}
    return cluster_info(data)
