"""What stands beside the document: Events and the Node of the real device plugin, found in ours.

Upstream drops Events over its limit and ours merges them, so each of upstream's must be in ours, as
often as upstream has it; what only ours has is no difference. Names and times of Events vary.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.compatibility import ABSENT, PRESENT, Difference, different

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from stores.base import KubernetesEvent, NodeObject

RELEASE = "EventReleaseUpgradeFault"
_FAULT = re.compile(
    r"device fault, nodeName:\S+, assertion:(?P<reason>\w+), "
    r"(cardID:(?P<cards>[\d ]+), deviceID:(?P<devices>[\d ]+)|physicalID:(?P<chips>[\d ]+)), "
    r"faultCodes:(?P<codes>[0-9A-F ]+), "
    r"faultLevelName:(?P<action>\w+), alarmRaisedTime:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    r"(, lastRaisedTime:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d, count:(?P<count>\d+))?"
)


def node_differences(
    upstream: Iterable[Mapping[str, Any]], ours: NodeObject
) -> Iterator[Difference]:
    """Yield the final differences in the Node's labels and annotations that upstream wrote."""
    there: dict[str, dict[str, str | None]] = {"labels": {}, "annotations": {}}
    for change in upstream:
        for kind, written in there.items():
            written.update(change.get(kind, {}))
    for kind, mine in (("labels", ours.labels), ("annotations", ours.annotations)):
        for name, value in there[kind].items():
            theirs = ABSENT if value is None else _parsed(value)
            yield from different(theirs, _parsed(mine.get(name, ABSENT)), f"$.node.{kind}.{name}")


def _parsed(text: str) -> Any:
    return json.loads(text) if text.startswith("{") else text


@dataclass(frozen=True)
class EventText:
    """One Event: about a code on a chip, or about a reason that was removed from it."""

    kind: str
    reason: str
    action: str
    place: str
    code: str


@dataclass
class _PostedEvent:
    """One Event: any of ``event_texts``, ``left`` times."""

    event_texts: frozenset[EventText]
    left: int


def missing_events(
    upstream: Iterable[Mapping[str, Any]], ours: Iterable[KubernetesEvent]
) -> Iterator[Difference]:
    """Yield upstream's Events (``type``, ``reason``, ``action``, ``message``) that ours lacks."""
    posted = [one for event in ours for one in _of_ours(event)]
    # Those about one thing alone first: a merged one can stand for others.
    posted.sort(key=lambda one: len(one.event_texts))
    for event in upstream:
        for event_text in _event_texts(**{key: event[key] for key in _MEMBERS}):
            found = next(
                (one for one in posted if one.left and event_text in one.event_texts), None
            )
            if found is None:
                what = (
                    f"{event_text.reason} {event_text.action} {event_text.place} {event_text.code}"
                )
                yield Difference(f"$.events.{what}", PRESENT, ABSENT)
            else:
                found.left -= 1


_MEMBERS = ("type", "reason", "action", "message")


def _of_ours(event: KubernetesEvent) -> Iterator[_PostedEvent]:
    kind = "Normal" if event.normal else "Warning"
    if event.involved.kind == "ConfigMap":
        return
    event_texts = frozenset(_event_texts(kind, event.reason, event.action, event.message))
    if event.reason == RELEASE:
        yield from (_PostedEvent(frozenset([event_text]), 1) for event_text in event_texts)
    else:
        yield _PostedEvent(event_texts, event.count)


def _event_texts(type: str, reason: str, action: str, message: str) -> Iterator[EventText]:  # noqa: A002
    if reason == RELEASE:
        for name, reasons in json.loads(message).items():
            for one in reasons:
                code = f"{one['fault_code']} {one['fault_level']} {one['upgrade_type']}"
                yield EventText(type, reason, action, name, code)
        return
    shown = _FAULT.fullmatch(message)
    assert shown is not None, message
    assert shown["reason"] == reason
    assert shown["action"] == action
    if shown["chips"] is None:
        cards, devices = shown["cards"].split(), shown["devices"].split()
        places = [f"{card}.{device}" for card, device in zip(cards, devices, strict=True)]
    else:
        # An agent that has not asked the driver yet. A card of the recordings has one chip.
        places = [f"{chip}.0" for chip in shown["chips"].split()]
    for place in places:
        for code in shown["codes"].split():
            yield EventText(type, reason, action, place, code)
