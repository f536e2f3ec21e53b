"""Stores as a stranger sees them; every document that is seen is checked."""

from __future__ import annotations

import json
import ssl
import threading
from abc import ABC, abstractmethod
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
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from tests.acceptance.reading import Health, Shown
    from tests.parts.controlplane import ControlPlane

NODES, CLUSTER = "kube-system", "mindx-dl"
_REPORT, _RESULT = {"mx-consumer-cim": "true"}, {"mx-consumer-volcano": "true"}


class Place(Protocol):
    """A store."""

    @property
    def options(self) -> list[str]:
        """Return the options that daemons need."""

    def read(self, namespace: str, name: str) -> dict[str, str] | None:
        """Return the data of a document; ``None`` if there is no document."""

    def write(self, name: str, data: dict[str, str]) -> None:
        """Write a document into the namespace of the nodes, as a stranger."""

    def delete(self, namespace: str, name: str) -> None:
        """Delete a document, as a stranger."""

    def device_info(self, node: str) -> Shown | None:
        """Return the decoded device-info of a node; ``None`` if there is none."""

    def cluster_info(self) -> dict[str, Shown]:
        """Return what the aggregator publishes; empty for nothing."""

    def node_info(self, node: str) -> Health | None:
        """Return the decoded node-info of a node; ``None`` if there is none."""

    def switch_info(self, node: str) -> Health | None:
        """Return what a node publishes about its switches."""

    def cluster_nodes(self) -> dict[str, Health]:
        """Return what the aggregator publishes about servers."""

    def cluster_switches(self) -> dict[str, Health]:
        """Return what the aggregator publishes about switches."""


class _Reader(ABC):
    """What both stores share."""

    @abstractmethod
    def read(self, namespace: str, name: str) -> dict[str, str] | None:
        """Return the data of a document; ``None`` if there is no document."""

    def device_info(self, node: str) -> Shown | None:
        data = self.read(NODES, DEVICE_PREFIX + node)
        return None if data is None or not data.get("DeviceInfoCfg") else device_info(data)

    def cluster_info(self) -> dict[str, Shown]:
        data = self.read(CLUSTER, CLUSTER_PREFIX + "0")
        return {} if data is None else cluster_info(data)

    def node_info(self, node: str) -> Health | None:
        data = self.read(CLUSTER, NODE_PREFIX + node)
        return None if data is None else node_info(data)

    def switch_info(self, node: str) -> Health | None:
        data = self.read(NODES, DEVICE_PREFIX + node)
        return None if data is None or "SwitchInfoCfg" not in data else switch_info(data)

    def cluster_nodes(self) -> dict[str, Health]:
        return self._cluster(CLUSTER_NODE, NODE_PREFIX)

    def cluster_switches(self) -> dict[str, Health]:
        return self._cluster(f"{CLUSTER_SWITCH_PREFIX}0", SWITCH_PREFIX)

    def _cluster(self, name: str, prefix: str) -> dict[str, Health]:
        data = self.read(CLUSTER, name)
        return {} if data is None else cluster_health(data[name], prefix)


class Folder(_Reader):
    """A directory store."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def options(self) -> list[str]:
        return ["--store", f"directory:{self.root}"]

    def read(self, namespace: str, name: str) -> dict[str, str] | None:
        try:
            content = json.loads((self.root / namespace / f"{name}.json").read_text())
        except FileNotFoundError:
            return None
        assert content["labels"] == _label(name)
        data: dict[str, str] = content["data"]
        return data

    def write(self, name: str, data: dict[str, str]) -> None:
        self.write_text(name, json.dumps({"labels": _REPORT, "data": data}))

    def write_text(self, name: str, text: str) -> None:
        """Write a file as it is."""
        file = self.root / NODES / f"{name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(".stranger")
        draft.write_text(text)
        draft.replace(file)

    def delete(self, namespace: str, name: str) -> None:
        (self.root / namespace / f"{name}.json").unlink()


class Cluster(_Reader):
    """A real API server."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        plane.ask("POST", "/api/v1/namespaces", {"metadata": {"name": CLUSTER}})

    @property
    def options(self) -> list[str]:
        return ["--store", "kubernetes:", "--kubeconfig", str(self.plane.kubeconfig)]

    def read(self, namespace: str, name: str) -> dict[str, str] | None:
        status, answer = self.plane.ask("GET", _path(namespace, name))
        if status == 404:
            return None
        assert status == 200, answer
        assert answer["metadata"]["labels"] == _label(name)
        data: dict[str, str] = answer.get("data") or {}
        return data

    def write(self, name: str, data: dict[str, str]) -> None:
        body = {"metadata": {"name": name, "labels": _REPORT}, "data": data}
        status, answer = self.plane.ask("PUT", _path(NODES, name), body)
        if status == 404:
            status, answer = self.plane.ask("POST", _path(NODES), body)
        assert status in (200, 201), answer

    def delete(self, namespace: str, name: str) -> None:
        self.plane.request("DELETE", _path(namespace, name))


class History:
    """Every version of all documents of a namespace, by a watch of its own.

    On leaving, ``UpdateTime`` of each node must have grown with each version that differs.
    """

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.versions: dict[str, list[Shown]] = {}
        context = ssl.create_default_context(cafile=str(plane.directory / "ca.crt"))
        context.load_cert_chain(plane.directory / "admin.crt", plane.directory / "admin.key")
        self._plane = plane
        self._path = _path(namespace)
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


def _path(namespace: str, name: str | None = None) -> str:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    return path if name is None else f"{path}/{name}"


def _label(name: str) -> dict[str, str]:
    return _REPORT if name.startswith((DEVICE_PREFIX, NODE_PREFIX)) else _RESULT
