"""What cluster-info shows of a chip: whether it is isolated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from contract.documents.cluster_info import (
    cluster_device_index,
    entry_texts,
    read_device_entry,
)
from contract.documents.device_info import DeviceFault
from contract.errors import DocumentError
from contract.go.decode import decode as decode_go
from contract.names import CLUSTER_LABEL, CLUSTER_NAMESPACE, device_info_name
from stores.base import Selection
from vigil.isolation.change import MANUAL

if TYPE_CHECKING:
    from stores.base import Document, Store
    from vigil.aggregator_stores import Stores


@dataclass(frozen=True)
class ShownChip:
    """What cluster-info shows of a chip: whether it is isolated, and the levels of other codes."""

    is_isolated: bool
    others: dict[str, str]


class Published:
    """What cluster-info shows of a chip, in all stores."""

    def __init__(self, stores: Stores, node: str) -> None:
        self._stores = stores.all
        self._key = device_info_name(node)
        self._names: dict[int, str] = {}
        """The document that has the node, by the number of the store."""

    async def shown(self, chip: str) -> list[ShownChip]:
        """Return what is shown of the chip in each store with an entry of its node.

        Raises ``StoreError``. What cannot be read has no entry.
        """
        result = []
        for number, store in enumerate(self._stores):
            entry = await self._entry(number, store)
            if entry is not None:
                result.append(_shown_chip([item for item in entry if item.npu_name == chip]))
        return result

    async def _entry(self, number: int, store: Store) -> list[DeviceFault] | None:
        if number in self._names:
            # Asked four times a second: one document by name, and all only where the node has
            # moved.
            document = await store.get(CLUSTER_NAMESPACE, self._names[number])
            shown = None if document is None else self._shown(document)
            if shown is not None:
                return shown
        for document in await store.list(Selection(CLUSTER_NAMESPACE, label=CLUSTER_LABEL)):
            if cluster_device_index(document.name) is not None:
                shown = self._shown(document)
                if shown is not None:
                    self._names[number] = document.name
                    return shown
        return None

    def _shown(self, document: Document) -> list[DeviceFault] | None:
        try:
            text = entry_texts(document.data.get(document.name, ""), document.name).get(self._key)
            if text is None:
                return None
            _, entry = read_device_entry(self._key, text, document.name)
            devices = entry.DeviceList or {}
            # The key of the free list is a prefix of the others, so it sorts first.
            faults = devices[f"{min(devices)}-Fault"]
            return decode_go(faults, list[DeviceFault], document.name, self._key)
        except DocumentError:
            return None


def _shown_chip(faults: list[DeviceFault]) -> ShownChip:
    """Return what objects of the fault list contain; the level of one may be the isolation."""
    levels = {
        code: item.fault_level
        for fault in faults
        for code, item in (fault.fault_time_and_level_map or {}).items()
    }
    isolates = any(fault.fault_level == MANUAL for fault in faults)
    return ShownChip(
        isolates or MANUAL in levels.values(),
        {code: level for code, level in levels.items() if level != MANUAL},
    )
