"""Reads the documents as a stranger would: plain JSON, no codec of the writers.

Formats: ``spec/device-plugin.md`` 1.2 to 1.4 and ``spec/clusterd.md`` 2.2.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stores.base import Changed, Deleted, Interrupted, Listed, Selection

if TYPE_CHECKING:
    from collections.abc import Callable

    from stores.base import Document, Store

_HARMLESS = frozenset({"NotHandleFault", "SubHealthFault"})
_INNER_PREFIX = "mindx-dl-deviceinfo-"


@dataclass(frozen=True)
class ChipsView:
    """What one document says about the chips of one node.

    ``faults``: physical id to code to level, chips without a fault left out. ``free`` and
    ``unhealthy`` are physical ids.
    """

    free: frozenset[int] = frozenset()
    unhealthy: frozenset[int] = frozenset()
    faults: dict[int, dict[str, str]] = field(default_factory=dict)

    @classmethod
    def expected(cls, chips: range, faults: dict[int, dict[str, str]]) -> ChipsView:
        """The only view that is right for ``faults``: harmless levels leave a chip free."""
        unhealthy = frozenset(
            chip for chip, codes in faults.items() if set(codes.values()) - _HARMLESS
        )
        return cls(
            free=frozenset(chips) - unhealthy,
            unhealthy=unhealthy,
            faults={chip: codes for chip, codes in faults.items() if codes},
        )


def _ids(names: str) -> frozenset[int]:
    return frozenset(int(name.rpartition("-")[2]) for name in names.split(",") if name)


def _chips_view(device_list: dict[str, str]) -> ChipsView:
    key = min(device_list, key=len)
    faults: dict[int, dict[str, str]] = {}
    for fault in json.loads(device_list[f"{key}-Fault"]):
        chip = int(fault["npu_name"].rpartition("-")[2])
        for code, entry in fault["fault_time_and_level_map"].items():
            faults.setdefault(chip, {})[code] = entry["fault_level"]
    return ChipsView(_ids(device_list[key]), _ids(device_list[f"{key}-Unhealthy"]), faults)


def read_device_info(text: str) -> ChipsView:
    """Read ``DeviceInfoCfg``; raises ``ValueError`` when the check code is wrong."""
    outer: dict[str, Any] = json.loads(text)
    start = text.index(":") + 1
    _, end = json.JSONDecoder().raw_decode(text, start)
    if hashlib.sha256(text[start:end].encode()).hexdigest() != outer["CheckCode"]:
        raise ValueError("the check code does not belong to the content")
    return _chips_view(outer["DeviceInfo"]["DeviceList"])


def read_cluster_info(text: str) -> dict[str, ChipsView]:
    """Read one ``cluster-info-device-N`` value: node to view."""
    entries: dict[str, Any] = json.loads(text) if text else {}
    return {
        key.removeprefix(_INNER_PREFIX): _chips_view(entry["DeviceList"])
        for key, entry in entries.items()
    }


class Reader:
    """Follows both kinds of documents in one store and remembers the present state."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changed = asyncio.Condition()
        self._cluster_documents: dict[str, dict[str, ChipsView]] = {}
        self.device: dict[str, ChipsView] = {}
        self.errors: list[str] = []

    @property
    def cluster(self) -> dict[str, ChipsView]:
        """Node to view, over all cluster-info-device documents."""
        return {
            node: view for views in self._cluster_documents.values() for node, view in views.items()
        }

    async def follow_device_info(self) -> None:
        """Follow every node's device-info until cancelled."""
        await self._follow("kube-system", ("mx-consumer-cim", "true"), self._read_device)

    async def follow_cluster_info(self) -> None:
        """Follow the aggregator's documents until cancelled."""
        await self._follow("mindx-dl", ("mx-consumer-volcano", "true"), self._read_cluster)

    async def _follow(
        self, namespace: str, label: tuple[str, str], read: Callable[[str, dict[str, str]], None]
    ) -> None:
        async for event in self._store.watch(Selection(namespace=namespace, label=label)):
            match event:
                case Listed(documents):
                    for document in documents:
                        self._read(document, read)
                case Changed(document):
                    self._read(document, read)
                case Deleted(_, name):
                    self.device.pop(name.removeprefix(_INNER_PREFIX), None)
                    self._cluster_documents.pop(name, None)
                case Interrupted():
                    continue
            async with self._changed:
                self._changed.notify_all()

    def _read(self, document: Document, read: Callable[[str, dict[str, str]], None]) -> None:
        try:
            read(document.name, document.data)
        except (KeyError, ValueError, TypeError) as error:
            self.errors.append(f"{document.namespace}/{document.name}: {error!r}")

    def _read_device(self, name: str, data: dict[str, str]) -> None:
        if name.startswith(_INNER_PREFIX):
            self.device[name.removeprefix(_INNER_PREFIX)] = read_device_info(data["DeviceInfoCfg"])

    def _read_cluster(self, name: str, data: dict[str, str]) -> None:
        if name.startswith("cluster-info-device-"):
            self._cluster_documents[name] = read_cluster_info(data[name])

    async def wait_until(self, reached: Callable[[], bool], timeout_seconds: float) -> float | None:
        """Wait until ``reached()``; the monotonic time at which it was, ``None`` if it was not."""
        try:
            async with asyncio.timeout(timeout_seconds), self._changed:
                await self._changed.wait_for(reached)
                return time.monotonic()
        except TimeoutError:
            return None
