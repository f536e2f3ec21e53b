"""The differences between two device-info documents, in words for people. Pure.

A document is decoded into facts: one field of one device, perhaps about one code. What varies
from run to run of the real Device Plugin is not a fact: ``UpdateTime``, ``fault_time``,
``upgrade_time`` and the time of a switch event, the order of codes within a chip and of the reasons
of a chip. The check code must belong to the content. Source: ``docs/spec/device-plugin.md#1``.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from agent.shadow.shape import shape_of
from contract.codes.levels import ChipLevel, most_serious
from contract.documents.device_info import (
    CARD_NETWORK_UNHEALTHY,
    DESCRIPTION,
    DESCRIPTION_KEY,
    UPGRADE_REASON_KEY,
    DeviceFault,
    DeviceInfo,
    decode,
)
from contract.documents.separation import UpgradeReason
from contract.documents.switch_info import SwitchEvent, decode_switch_info
from contract.errors import CheckCodeMismatch, DocumentError
from contract.go.decode import decode as decode_json
from contract.pages.agent_status import Field

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from stores.base import Document


_RANK = {field: rank for rank, field in enumerate(Field)}
_LISTS = {
    Field.UNHEALTHY: "unhealthy list",
    Field.NETWORK_UNHEALTHY: "network-unhealthy list",
    Field.FREE: "free list",
    Field.RECOVERING: "recovering list",
    Field.MANUALLY_SEPARATED: "ManuallySeparateNPU",
}
_PLACES = {
    Field.DOCUMENT: "the document",
    Field.CHECK_CODE: "CheckCode",
    Field.UPDATE_TIME: "UpdateTime",
    Field.DEVICE_TYPE: "device type",
    Field.FAULT_CODE: "{device}: fault_code {detail}",
    Field.CODE_LEVEL: "{device}: fault_level of {detail}",
    Field.FAULT_LEVEL: "{device}: fault_level of the {detail} entry",
    Field.FAULT_HANDLING: "{device}: fault_handling of the {detail} entry",
    Field.LARGE_MODEL_FAULT_LEVEL: "{device}: large_model_fault_level of the {detail} entry",
    Field.UPGRADE_REASON: "{device}: UpgradeFaultReason {detail}",
    Field.SWITCH_FAULT: "switch fault {detail}",
    Field.SWITCH_CODE_LEVEL: "fault_level of switch fault {detail}",
    Field.SWITCH_LEVEL: "FaultLevel of the switches",
    Field.SWITCH_STATUS: "NodeStatus of the switches",
    Field.SUPER_POD_ID: "SuperPodID",
    Field.SERVER_INDEX: "ServerIndex",
    Field.RACK_ID: "RackID",
    Field.ORDER: "order of the {detail}",
    Field.KEYS: "keys of {detail}",
    Field.LABELS: "labels of the ConfigMap",
    Field.DESCRIPTION: "Description",
    **{field: f"{name}: {{device}}" for field, name in _LISTS.items()},
}


class Fact(NamedTuple):
    """Which field, of which ``device`` (empty: the node as a whole), about which ``detail``.

    ``detail`` is a code, a kind of fault entry, or the name of an ordered list.
    """

    field: Field
    device: str = ""
    detail: str = ""

    @property
    def place(self) -> str:
        """The place of the fact in the document, for people."""
        text = _PLACES[self.field].format(device=self.device, detail=self.detail)
        return text.removeprefix(": ").rstrip()


Facts: TypeAlias = "Mapping[Fact, str]"
"""The facts in a document; a fact that is not in it is absent."""

_CAUSES = {Field.FAULT_CODE, Field.MANUALLY_SEPARATED, Field.UPGRADE_REASON, Field.SWITCH_FAULT}
_CAUSE_WEIGHT = 20
_KEY_OF = {
    Field.CODE_LEVEL: Field.FAULT_CODE,
    Field.FAULT_LEVEL: Field.FAULT_CODE,
    Field.FAULT_HANDLING: Field.FAULT_CODE,
    Field.LARGE_MODEL_FAULT_LEVEL: Field.FAULT_CODE,
    Field.SWITCH_CODE_LEVEL: Field.SWITCH_FAULT,
}
_ISOLATES = {Field.MANUALLY_SEPARATED, Field.UPGRADE_REASON}
_SWITCHES = {
    Field.SWITCH_FAULT,
    Field.SWITCH_CODE_LEVEL,
    Field.SWITCH_LEVEL,
    Field.SWITCH_STATUS,
}
Groups: TypeAlias = "Mapping[tuple[str, str], Facts]"
"""Facts that change together, by device and by what they are about."""
ISOLATION = "isolation"
_LISTED = "listed"
_SORTED, _UNSORTED = "sorted", "not sorted"


class DocumentDifference(msgspec.Struct, frozen=True):
    """A fact that is ``theirs`` in the document of another program and ``ours`` in our own.

    ``None``: the fact is absent.
    """

    fact: Fact
    theirs: str | None
    ours: str | None

    def __str__(self) -> str:
        place = self.fact.place
        if _LISTED in (self.theirs, self.ours) or self.fact.field is Field.FAULT_CODE:
            if self.theirs is None:
                return f"{place} missing"
            if self.ours is None:
                return f"{place} too much"
        return f"{place}: {self.theirs or 'nothing'}, ours {self.ours or 'nothing'}"


def in_order(differences: Iterable[DocumentDifference]) -> list[DocumentDifference]:
    """Return differences in the order of a report: causes before their effects."""
    return sorted(
        differences, key=lambda difference: (_RANK[difference.fact.field], difference.fact)
    )


def differences(theirs: Facts, ours: Facts) -> list[DocumentDifference]:
    """Return all facts that differ, in the order of a report."""
    return in_order(
        DocumentDifference(fact, theirs.get(fact), ours.get(fact))
        for fact in {**theirs, **ours}
        if theirs.get(fact) != ours.get(fact)
    )


def grouped(facts: Facts) -> Groups:
    """Return facts that change together: those of a chip, of its separation, of all switches.

    The separation of a chip is written a cycle before its lists and levels follow
    (device-plugin#3.6).
    """
    groups: dict[tuple[str, str], dict[Fact, str]] = {}
    for fact, value in facts.items():
        if fact.field in _SWITCHES:
            group = ("", "switches")
        elif fact.field in _ISOLATES:
            group = (fact.device, ISOLATION)
        elif fact.device:
            group = (fact.device, "")
        else:
            group = (fact.field, fact.detail)
        groups.setdefault(group, {})[fact] = value
    return dict(groups)


def is_mixture(theirs: Facts, states: list[Facts]) -> bool:
    """Return whether a chip has the codes of several of ``states``, with all else following from
    these.

    Recoveries are withheld for a second, occurrences are not (``docs/spec/device-plugin.md#2.1``).
    """
    codes = _codes(theirs)
    shown_codes = [_codes(state) for state in states]
    if codes in shown_codes or not codes <= set().union(*shown_codes):
        return False
    for fact in dict.fromkeys(fact for state in (theirs, *states) for fact in state):
        if all(state.get(fact) != theirs.get(fact) for state in states):
            return False
    levels = {
        fact.detail: level for fact, level in theirs.items() if fact.field is Field.CODE_LEVEL
    }
    for fact, level in theirs.items():
        if fact.field is Field.FAULT_LEVEL:
            own = [levels.get(code.detail) for code in codes if theirs[code] == fact.detail]
            if None in own or level != most_serious(ChipLevel(word) for word in own if word):
                return False
    return True


def _codes(facts: Facts) -> set[Fact]:
    return {fact for fact in facts if fact.field is Field.FAULT_CODE}


def nearest(theirs: Facts, ours: Iterable[Facts]) -> list[DocumentDifference]:
    """Return the differences to that of ``ours`` which differs least, and of several to the
    last.
    """
    candidates = [differences(theirs, facts) for facts in ours]
    # Reversed, because ``min`` returns the first of several that are equal.
    return min(reversed(candidates), key=_weight)


def _weight(listed: list[DocumentDifference]) -> int:
    """Return the number of keys that differ; a cause that we do not have at all counts for more."""
    keys = {
        (difference.fact.device, _KEY_OF.get(difference.fact.field, difference.fact.field))
        for difference in listed
    }
    unknown = [
        difference
        for difference in listed
        if difference.fact.field in _CAUSES and difference.ours is None
    ]
    return len(keys) + _CAUSE_WEIGHT * len(unknown)


def unreadable(error: DocumentError) -> DocumentDifference:
    """Return the difference between a document that its readers refuse and one of ours."""
    field = Field.CHECK_CODE if isinstance(error, CheckCodeMismatch) else Field.DOCUMENT
    return DocumentDifference(Fact(field), f"{error.where}: {error.what}", "right")


def facts_of(document: Document) -> dict[Fact, str]:
    """Return the facts in ``document``.

    Raises ``DocumentError`` for one that its readers refuse.
    """
    info = decode(document.data, document.name)
    if info.faults_problem is not None:
        raise DocumentError(document.name, "-Fault", info.faults_problem)
    facts = dict(_lists(info))
    facts.update(_faults(info))
    facts.update(_reasons(info))
    facts.update(_switches(document))
    facts[Fact(Field.DEVICE_TYPE)] = info.device_type
    facts[Fact(Field.SUPER_POD_ID)] = str(info.super_pod_id)
    facts[Fact(Field.SERVER_INDEX)] = str(info.server_index)
    facts[Fact(Field.RACK_ID)] = str(info.rack_id)
    facts.update((Fact(Field.KEYS, "", part), shape) for part, shape in shape_of(document))
    labels = sorted(f"{key}={value}" for key, value in document.labels.items())
    facts[Fact(Field.LABELS)] = ", ".join(labels)
    is_usual = document.data.get(DESCRIPTION_KEY) == DESCRIPTION
    facts[Fact(Field.DESCRIPTION)] = "the usual one" if is_usual else "another one"
    return facts


def _lists(info: DeviceInfo) -> Iterator[tuple[Fact, str]]:
    named = tuple(filter(None, info.manually_separated.split(",")))
    for field, names in (
        (Field.FREE, info.free),
        (Field.UNHEALTHY, info.unhealthy),
        (Field.NETWORK_UNHEALTHY, info.network_unhealthy),
        (Field.RECOVERING, info.recovering),
        (Field.MANUALLY_SEPARATED, named),
    ):
        for name, count in Counter(names).items():
            yield Fact(field, name), _LISTED if count == 1 else f"listed {count} times"
        # The manual list is ordered by number, the others are ordered as texts.
        order = _by_number if field is Field.MANUALLY_SEPARATED else str
        yield _order(_LISTS[field], [order(name) for name in names])


def _order(of_what: str, keys: list[str]) -> tuple[Fact, str]:
    return Fact(Field.ORDER, "", of_what), _SORTED if keys == sorted(keys) else _UNSORTED


def _by_number(name: str) -> str:
    head, _, number = name.rpartition("-")
    # Padded, so that the texts have the order of their numbers.
    return f"{head}-{number:0>9}"


def _faults(info: DeviceInfo) -> Iterator[tuple[Fact, str]]:
    for fault in info.faults:
        yield from _entry(fault)
    keys = [
        f"{_by_number(fault.npu_name)} {fault.fault_type != CARD_NETWORK_UNHEALTHY}"
        for fault in info.faults
    ]
    yield _order("fault list", keys)


def _entry(fault: DeviceFault) -> Iterator[tuple[Fact, str]]:
    name, kind = fault.npu_name, fault.fault_type
    for code, count in Counter(filter(None, fault.fault_code.split(","))).items():
        yield Fact(Field.FAULT_CODE, name, code), kind if count == 1 else f"{kind}, {count} times"
    for code, entry in (fault.fault_time_and_level_map or {}).items():
        yield Fact(Field.CODE_LEVEL, name, code), entry.fault_level
    yield Fact(Field.FAULT_LEVEL, name, kind), fault.fault_level
    yield Fact(Field.FAULT_HANDLING, name, kind), fault.fault_handling
    yield Fact(Field.LARGE_MODEL_FAULT_LEVEL, name, kind), fault.large_model_fault_level


def _reasons(info: DeviceInfo) -> Iterator[tuple[Fact, str]]:
    try:
        reasons = decode_json(
            info.upgrade_reasons, dict[str, list[UpgradeReason]], "", UPGRADE_REASON_KEY
        )
    except DocumentError as error:
        yield Fact(Field.UPGRADE_REASON), f"cannot be read: {error.what}"
        return
    for name, listed in reasons.items():
        for identity, count in Counter(map(_identity, listed)).items():
            times = _LISTED if count == 1 else f"listed {count} times"
            yield Fact(Field.UPGRADE_REASON, name, identity), times


def _identity(reason: UpgradeReason) -> str:
    return f"{reason.fault_code} {reason.fault_level} {reason.upgrade_type}"


def _switches(document: Document) -> Iterator[tuple[Fact, str]]:
    record = decode_switch_info(document.name, document.data)
    if record is None:
        return
    for event, count in Counter(map(_switch_fault, record.events)).items():
        yield Fact(Field.SWITCH_FAULT, "", event), str(count)
    for key, _, level in record.times or ():
        yield Fact(Field.SWITCH_CODE_LEVEL, "", key), level
    yield Fact(Field.SWITCH_LEVEL), record.level
    yield Fact(Field.SWITCH_STATUS), record.status


def _switch_fault(event: SwitchEvent) -> str:
    return (
        f"{event.assembled_fault_code} (type {event.event_type}) of switch {event.switch_chip_id} "
        f"port {event.switch_port_id} to {event.peer_port_device}/{event.peer_port_id}, "
        f"severity {event.severity}, assertion {event.assertion}"
    )
