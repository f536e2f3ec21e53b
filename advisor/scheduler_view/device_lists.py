"""What the plugin keeps of the lists of a node (``docs/spec/consumers.md#1.5`` and 1.6).

An entry passes a gate, a quick one is merged, keys that it lacks keep their values, and the list of
free cards is made from Kubernetes' own view where the scheduler maintains it. The cards that a node
has are in its annotation ``baseDeviceInfos``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec

from advisor.options import Profile
from advisor.scheduler_view import document_entries
from advisor.scheduler_view.document_entries import (
    FAULT,
    NETWORK_UNHEALTHY,
    RECOVERING,
    UNHEALTHY,
    VolcanoDeviceEntry,
)
from advisor.scheduler_view.state import NodeMemory
from contract import scheduling
from contract.sentences import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from advisor.options import AdvisorOptions
    from advisor.snapshot import Amounts, SchedulerNode, SchedulerPod

FORCE_UPDATE_SECONDS = 10
"""At most this old, the list before limits the new one (consumers#1.5, item 2)."""
# Above that the plugin takes the annotation of the resource instead (consumers#1.6).
MAX_CARDS_OF_POD = 100
_WITH_NETWORK = ("Ascend910", "npu")
_Uint32: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]


class DeviceLists:
    """The lists of one node in one session.

    ``problems`` are codes and texts of findings, ``divergences`` numbers of consumers#8 with what
    is done otherwise.
    """

    def __init__(
        self,
        node: SchedulerNode,
        pods: Sequence[SchedulerPod],
        idle: Amounts,
        memory: NodeMemory | None,
        stamp: int,
        options: AdvisorOptions,
    ) -> None:
        """``stamp``: the time of ``memory``, in Unix seconds."""
        self.node = node
        self.pods = pods
        self.idle = idle
        self.before = memory
        self.stamp = stamp
        self.is_steady = True
        """Whether the lists would be the same in a later session, whenever that is."""
        self.is_derived = True
        """Whether a scheduler that starts now would keep the same."""
        self.options = options
        self.corrected = options.profile is Profile.CORRECTED
        self.problems: list[tuple[str, str]] = []
        self.divergences: list[tuple[int, str]] = []

    def _diverges(self, section: int, text: str) -> None:
        self.divergences.append((section, text))

    def take_entry(self, entry: VolcanoDeviceEntry | None, now: int) -> NodeMemory:
        """Return what the plugin keeps of the node after it has looked at ``entry``."""
        before = self.before or NodeMemory()
        uids = tuple(pod.uid for pod in self.pods)
        cached_lists = before.kept
        # The same object, so that an unchanged memory compares by identity.
        if uids == before.pods:
            uids = before.pods
        elif self.before is not None:
            cached_lists = self._without_new_pods(cached_lists, frozenset(before.pods))
        # Upstream keeps lists of a node whose entry has gone; ``corrected`` does not.
        if self.corrected and entry is None:
            cached_lists = {}
        listed = self._maintained(entry, now)
        stamp = self.stamp
        if listed is not None and listed.DeviceList is not None:
            self._report_omitted(listed.DeviceList, cached_lists)
            # Strictly newer: the gate of consumers#1.5.
            if listed.UpdateTime > stamp:
                cached_lists = self._merged(listed, listed.DeviceList, cached_lists, stamp)
                stamp = listed.UpdateTime
            elif _differs(listed.DeviceList, cached_lists):
                text = sentence(
                    "UpdateTime {time} is not above {stamp}, the last one applied: the scheduler "
                    "does not see this entry",
                    time=listed.UpdateTime,
                    stamp=stamp,
                )
                self.problems.append(("UPDATE_LOST", text))
            # What is applied already is not limited by the time since then (consumers#1.5, item 2).
            self.is_steady = all(
                cached_lists.get(key) == text for key, text in listed.DeviceList.items()
            )
        elif listed is None and entry is not None:
            # An entry without lists is applied in its place, with its stamp (consumers#1.6).
            stamp = max(stamp, entry.UpdateTime)
        if listed is not None and listed is not entry:
            # A list that the scheduler makes itself is stamped with the session's time, so it
            # passes each gate.
            self.is_steady = self.is_steady and stamp == now
            # ``None`` stands for the time of the session; otherwise each node would change in each
            # one (decision 31).
            memory = NodeMemory(
                None if stamp == now else stamp, cached_lists, uids, before.link_down_at
            )
        else:
            memory = NodeMemory(stamp, cached_lists, uids, before.link_down_at)
        lists = None if listed is None else listed.DeviceList
        self.is_derived = not memory.link_down_at and cached_lists == (lists or {})
        if lists is not None and listed is not None:
            self.is_derived = self.is_derived and stamp == listed.UpdateTime
        return before if memory == self.before else memory

    def _merged(
        self,
        listed: VolcanoDeviceEntry,
        values: Mapping[str, str],
        cached_lists: dict[str, str],
        stamp: int,
    ) -> dict[str, str]:
        """Return the lists after an entry has passed the gate."""
        merged = dict(cached_lists)
        is_quick = listed.UpdateTime - stamp <= FORCE_UPDATE_SECONDS
        for key, text in values.items():
            # The list of free cards is the only key without a suffix.
            if "-" not in key and is_quick:
                merged[key] = self._limited(key, cached_lists, text)
            elif self.corrected and key.endswith(FAULT) and _is_worse(cached_lists.get(key), text):
                self._diverges(16, "its -Fault text cannot be read: the last readable one counts")
            else:
                merged[key] = text
        return cached_lists if merged == cached_lists else merged

    def _report_omitted(self, listed: Mapping[str, str], cached_lists: Mapping[str, str]) -> None:
        """Note the keys that an entry lacks (M5); old chips have neither network nor reset."""
        kind = document_entries.device_type(listed)
        network = (NETWORK_UNHEALTHY, RECOVERING) if kind in _WITH_NETWORK else ()
        for suffix in ("", UNHEALTHY, FAULT, *network):
            key = f"{scheduling.RESOURCE_DOMAIN}{kind}{suffix}"
            if key not in listed:
                text = (
                    sentence(
                        "{key} is not in the entry: its last value stays in force",
                        key=key,
                    )
                    if key in cached_lists
                    else sentence("{key} is not in the entry: it was never there", key=key)
                )
                self.problems.append(("KEY_OMITTED", text))

    def _without_new_pods(
        self, cached_lists: dict[str, str], before: frozenset[str]
    ) -> dict[str, str]:
        """Return ``cached_lists`` without the cards of pods placed since the session before.

        Source: docs/spec/consumers.md#1.6.
        """
        lists = dict(cached_lists)
        for pod in self.pods:
            if pod.uid in before:
                continue
            for key in cached_lists:
                cards = pod.annotations.get(key) if "-" not in key else None
                if cards:
                    taken = set(cards.split(","))
                    remaining = [
                        # Cards of a pod that was just placed are not free, although no entry shows
                        # it yet.
                        name
                        for name in document_entries.names(lists[key])
                        if name not in taken
                    ]
                    lists[key] = ",".join(remaining)
        return lists

    def _maintained(self, entry: VolcanoDeviceEntry | None, now: int) -> VolcanoDeviceEntry | None:
        """Return ``entry`` with the free list that the scheduler makes itself (consumers#1.6)."""
        if entry is None or entry.DeviceList is None:
            return entry
        base = base_devices(self.node.annotations.get(scheduling.BASE_DEVICE_INFOS))
        if base is None:
            text = "Its annotation baseDeviceInfos is missing or no JSON: nothing new is applied"
            self.problems.append(("NODE_FROZEN", text))
            if not self.corrected:
                return None
            self._diverges(5, "without baseDeviceInfos the reported list counts")
            return entry
        resource = scheduling.RESOURCE_DOMAIN + document_entries.device_type(entry.DeviceList)
        # Each of these keeps the scheduler from making the list itself (consumers#1.6).
        if (
            not self.options.self_maintain
            or resource not in entry.DeviceList
            or base.has_virtual
            or self.node.labels.get(scheduling.SOFT_SHARE) == "true"
        ):
            return entry
        taken = set(self._used(resource))
        taken.update(document_entries.names(entry.DeviceList.get(resource + UNHEALTHY)))
        taken.update(document_entries.names(entry.DeviceList.get(resource + RECOVERING)))
        free = ",".join(name for name in base.names if name not in taken)
        return VolcanoDeviceEntry(
            {**entry.DeviceList, resource: free}, now, entry.SuperPodID, entry.RackID
        )

    def _used(self, resource: str) -> Iterable[str]:
        for pod in self.pods:
            cards = pod.annotations.get(scheduling.ASCEND_REAL, "")
            if not cards or cards.count(",") >= MAX_CARDS_OF_POD:
                cards = pod.annotations.get(resource, "")
            if cards:
                yield from cards.split(",")

    def _limited(self, key: str, cached_lists: Mapping[str, str], text: str) -> str:
        """Return the free list as the ten-second merge leaves it (consumers#1.5, item 2)."""
        new = document_entries.names(text)
        old = document_entries.names(cached_lists.get(key))
        idle = self.idle.get(key)
        # Limited only where Kubernetes' count agrees with the old list and not with the new one.
        if not old or not new or idle != len(old) or idle == len(new):
            return text
        allowed = {*old, *document_entries.names(cached_lists.get(key + UNHEALTHY))}
        return ",".join(name for name in new if name in allowed)


def _is_worse(before: str | None, now: str) -> bool:
    """Whether a ``-Fault`` text cannot be read where the one before could."""
    return (
        before is not None
        and document_entries.read_faults(now or "[]") is None
        and document_entries.read_faults(before or "[]") is not None
    )


def _differs(listed: Mapping[str, str], cached_lists: Mapping[str, str]) -> bool:
    return any(cached_lists.get(key) != text for key, text in listed.items() if "-" in key)


class BaseDevices(msgspec.Struct, frozen=True):
    """What is in ``baseDeviceInfos``: card names in order, and of which kind they are."""

    names: tuple[str, ...]
    has_virtual: bool
    has_ids: bool


class _Card(msgspec.Struct, omit_defaults=True):
    ip: str | None = msgspec.field(default="", name="IP")
    super_device_id: _Uint32 | None = msgspec.field(default=0, name="SuperDeviceID")
    device_id: _Uint32 | None = msgspec.field(default=None, name="DeviceID")


_base_cards = msgspec.json.Decoder(dict[str, _Card | None])


# Above the 10,000 nodes of docs/scale.md: each has a text of its own, with its addresses.
@lru_cache(maxsize=32768)
def base_devices(text: str | None) -> BaseDevices | None:
    """Return the cards of the annotation; ``None`` where it is missing or no JSON."""
    cards = None if text is None else _cards(text)
    if cards is None:
        return None
    names, has_ids = cards
    # A name with more than one dash is virtual: ``Ascend910-2c-100-1`` (consumers#2.1).
    has_virtual = any(name.count("-") > 1 for name in names)
    return BaseDevices(
        _shared(tuple(name for name in names if name.count("-") == 1)), has_virtual, has_ids
    )


def without_addresses(text: str) -> str:
    """Return an annotation with the same cards, one text for all nodes that have them.

    What a node has of its own are addresses, which ``base_devices`` does not read.
    """
    cards = _cards(text)
    return "" if cards is None else _text(*cards)


def _cards(text: str) -> tuple[tuple[str, ...], bool] | None:
    """Return the names of the cards, sorted, and whether all have a ``DeviceID``."""
    try:
        cards = _base_cards.decode(text)
    # The plugin treats a text that it cannot read as missing (consumers#1.6).
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    has_ids = all(card is not None and card.device_id is not None for card in cards.values())
    return tuple(sorted(cards)), has_ids


@lru_cache(maxsize=256)
def _text(names: tuple[str, ...], has_ids: bool) -> str:
    # The value of the id does not matter, only that each card has one (``has_ids``).
    card = _Card(device_id=0) if has_ids else _Card()
    return msgspec.json.encode(dict.fromkeys(names, card)).decode()


@lru_cache(maxsize=256)
def _shared(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return one value for all nodes with the same cards."""
    return names
