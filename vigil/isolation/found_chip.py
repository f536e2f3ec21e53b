"""Finds which documents isolate a chip, which chips a node has, and why a request is refused."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.node.labels import BASE_DEVICE_INFOS
from aggregator.processors import separation_documents
from contract.documents.device_info import decode
from contract.documents.isolation_request import read_requests
from contract.documents.separation import chip_of, read_names
from contract.documents.write_numbers import NoWrites, decode_owned
from contract.errors import DocumentError, StoreError, StoreRefused
from contract.names import (
    DEVICE_INFO_NAMESPACE,
    device_info_name,
)
from contract.sentences import sentence
from stores.kubernetes_api.writers import OURS
from vigil.isolation.change import is_named, is_separated

if TYPE_CHECKING:
    from stores.base import Beat, Document, Store
    from vigil.aggregator_stores import Stores


@dataclass
class FoundChip:
    """What the stores have of a chip, named ``chip`` once its node is known.

    ``reports`` are the device-info documents of its node, ``separating`` the stores whose
    ``clusterd-manual-info-cm`` has it. ``problems`` are what could not be read.
    """

    chip: str
    reports: list[tuple[Store, Document]] = field(default_factory=list)
    separating: list[Store] = field(default_factory=list)
    chips: set[str] = field(default_factory=set)
    chips_are_complete: bool = True
    beats: tuple[Beat, ...] | None = None
    """``None``: they may not be read."""
    problems: list[str] = field(default_factory=list)

    def holders(self) -> list[str]:
        """Return the documents that isolate the chip, each with its store."""
        return [
            *(
                _place(f"{document.namespace}/{document.name}", store)
                for store, document in self.reports
                if is_named(document, self.chip)
            ),
            *(
                _place(f"{separation_documents.NAMESPACE}/{separation_documents.CHIPS_NAME}", store)
                for store in self.separating
            ),
        ]


def _place(document: str, store: Store) -> str:
    return sentence("{document} of {store}", document=document, store=store.url)


async def find(stores: Stores, node: str, chip: str) -> FoundChip:
    """Read what the stores have of a chip. Raises ``StoreError``."""
    result = FoundChip(chip)
    for store in stores.read:
        document = await store.get(DEVICE_INFO_NAMESPACE, device_info_name(node))
        if document is not None:
            result.reports.append((store, document))
            await _read_chips(result, store, document, node)
    number = chip.rpartition("-")[2]
    if number == chip and number.isdecimal():
        # A bare number is completed only where it can mean one chip.
        types = {name.rpartition("-")[0] for name in result.chips}
        if len(types) == 1:
            result.chip = f"{types.pop()}-{int(number)}"
    # An aggregator shows its separations where it publishes, which it may not read.
    for store in stores.all:
        document = await store.get(separation_documents.NAMESPACE, separation_documents.CHIPS_NAME)
        try:
            if document is not None and is_separated(document, node, result.chip):
                result.separating.append(store)
        except DocumentError as error:
            result.problems.append(f"{error}; it is left as it is")
    result.beats = await beats_of(stores, node)
    return result


async def _read_chips(chip: FoundChip, store: Store, document: Document, node: str) -> None:
    try:
        info = decode(document.data, document.name)
    except DocumentError as error:
        chip.chips_are_complete = False
        chip.problems.append(f"{error}; its writer repairs it when it publishes again")
        return
    # A chip that pods use is in none of these lists (device-plugin#1.3).
    listed = {*info.free, *info.unhealthy, *info.network_unhealthy, *info.recovering}
    chip.chips |= {name.strip() for name in listed if chip_of(name) is not None}
    chip.chips |= {fault.npu_name for fault in info.faults if chip_of(fault.npu_name) is not None}
    numbers = (read_names(document.data) or frozenset()) | read_requests(
        document.annotations
    ).keys()
    chip.chips |= {f"{info.device_type}-{number}" for number in numbers}
    # Only an API server has Nodes with their annotation of cards.
    if store.objects is None:
        return
    # A chip that a pod uses is in no list of device-info.
    try:
        there = (await store.objects.get_node(node)).annotations.get(BASE_DEVICE_INFOS, "")
        chip.chips |= set(json.loads(there))
    # Without it a chip in use may be missing, so the list is not complete.
    except (StoreError, ValueError, TypeError):
        chip.chips_are_complete = False


async def beats_of(stores: Stores, node: str) -> tuple[Beat, ...] | None:
    """Return the heartbeats of a node; ``None`` where the account may not read them."""
    try:
        return tuple([beat for store in stores.read for beat in await store.beats(node)])
    except StoreRefused:
        return None


async def refusal(chip: FoundChip, node: str) -> str | None:
    """Return why the writer of device-info would refuse a request; ``None`` where it takes it."""
    for store, document in chip.reports:
        writer = await store.writer(document.namespace, document.name)
        # Decision 39: the verb refuses where the Device Plugin would take the name out.
        if writer is not None and writer.name not in OURS:
            return sentence(
                "device-info of {node} is written by {writer}, which takes an added name out "
                "again. Isolate the chip with the means of that program, or cordon the node",
                node=node,
                writer=repr(writer.name),
            )
    if chip.problems:
        return chip.problems[0]
    if chip.beats is None:
        return None
    if not chip.beats:
        return sentence(
            "no agent of NPU Vigil has a heartbeat for {node}, so none would take the request; "
            "device-info is another program's, or it is left behind",
            node=node,
        )
    for beat in chip.beats:
        try:
            owned = decode_owned(beat.writes) if beat.writes else frozenset[str]()
        except NoWrites:
            continue
        if owned is not None and "device-info" not in owned:
            return sentence(
                "the agent of {node} does not write device-info: it is in shadow, of an earlier "
                "release, or another program writes it",
                node=node,
            )
    return None
