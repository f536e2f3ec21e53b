"""Renders Kubernetes Events as upstream writes them (``docs/spec/device-plugin.md#1.5`` and
6.1).
"""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec.structs import replace

from agent.kubernetes_events.correlator import Other, ReleasedReasons
from agent.kubernetes_events.event_rules import OCCUR
from agent.policy.state import ChangeKind
from contract.codes.families import FAMILIES
from contract.documents.separation import UpgradeReason, write_reasons, written_code
from contract.record import Record
from stores.base import Involved, KubernetesEvent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agent.kubernetes_events.correlator import CorrelatedEvent, Item
    from agent.policy.state import Change
    from dcmi_shim.values import Chip, Inventory

NAMESPACE = "kube-system"
COMPONENT = "device-plugin"
RELEASE = "EventReleaseUpgradeFault"

_MAX_MESSAGE_BYTES = 1024
_REASONS = 6
"""As many as fit into a message."""
# The API server accepts no longer ``reportingInstance``.
_INSTANCE_LENGTH = 128
_NO_NAME = re.compile(r"[^a-z0-9.-]+|(?<![a-z0-9])[.-]+|[.-]+(?![a-z0-9])")
_BY_LOGIC_ID = "Ascend910A5"


class Reporter(Record, frozen=True):
    """The reporting agent. ``pod`` is the name of our pod, ``None`` outside of one."""

    node: str
    pod: str | None = None

    @property
    def instance(self) -> str:
        """The prefix of the names of our Events."""
        name = _NO_NAME.sub("-", (self.pod or self.node).lower()).strip("-.")
        return name[:_INSTANCE_LENGTH].rstrip("-.") or "npu-vigil"


def event_of(item: Item, reporter: Reporter, inventory: Inventory | None) -> KubernetesEvent:
    """Return ``item`` as an Event. Without an inventory, chips are named by their physical ids."""
    if isinstance(item, Other):
        event = item.event
        return replace(
            event,
            message=_cut(event.message),
            host=event.host or reporter.node,
            instance=event.instance or reporter.instance,
        )
    if isinstance(item, ReleasedReasons):
        reason = action = RELEASE
        name = f"{RELEASE.lower()}.{item.name}"
        message = _reasons(item, inventory)
    else:
        reason, action, name = item.reason, item.action, item.name
        message = _message(item, reporter.node, inventory)
    count = "" if item.count == 1 else f".{item.count}"
    return KubernetesEvent(
        namespace=NAMESPACE,
        name=f"{reporter.instance}.{name}{count}",
        # ``kubectl describe node`` finds it by the name as uid, which the kubelet writes, too.
        # Upstream names its pod, and puts it into ``kube-system``.
        involved=Involved("Node", reporter.node, uid=reporter.node),
        normal=reason != OCCUR,
        reason=reason,
        action=action,
        message=message,
        first_ms=item.first_ms,
        last_ms=item.last_ms,
        count=item.count,
        component=COMPONENT,
        host=reporter.node,
        instance=reporter.instance,
    )


def releases(changes: Sequence[Change], sequence: int) -> Iterator[ReleasedReasons]:
    """Yield all reasons that ``changes`` removed, for any cause; normally as one.

    ``sequence`` makes the names unique.
    """
    released = [
        (change.subject.id, change.upgrade, change.at_ms)
        for change in changes
        if change.kind is ChangeKind.RELEASED and change.upgrade is not None
    ]
    for first in range(0, len(released), _REASONS):
        some = released[first : first + _REASONS]
        times = [at_ms for *_, at_ms in some]
        reasons = tuple((chip, upgrade) for chip, upgrade, _ in some)
        yield ReleasedReasons(f"{times[-1]}.{sequence}.{first}", reasons, min(times), max(times))


def _reasons(release: ReleasedReasons, inventory: Inventory | None) -> str:
    family = None if inventory is None else FAMILIES.get(inventory.family)
    reasons: defaultdict[str, list[UpgradeReason]] = defaultdict(list)
    for chip, upgrade in release.reasons:
        name = f"chip-{chip}" if family is None else family.device_name(chip)
        code = written_code(upgrade.code)
        reasons[name].append(
            UpgradeReason(upgrade.upgraded_at_ms, code, upgrade.level, upgrade.kind)
        )
    return write_reasons(reasons)


def _message(group: CorrelatedEvent, node: str, inventory: Inventory | None) -> str:
    head = f"device fault, nodeName:{node}, assertion:{group.reason}, {_places(group, inventory)}"
    tail = f", faultLevelName:{group.action}, alarmRaisedTime:{_time(group.first_ms)}"
    if group.count > 1:
        tail += f", lastRaisedTime:{_time(group.last_ms)}, count:{group.count}"
    codes, unnamed = " ".join(group.codes), group.codes_unnamed
    text = f"{head}, faultCodes:{codes}{tail}"
    if len(text.encode()) <= _MAX_MESSAGE_BYTES and not unnamed:
        return text
    more = " and others in the journal"
    room = _MAX_MESSAGE_BYTES - len(f"{head}, faultCodes:{more}{tail}".encode())
    named = codes[: max(room, 0) + 1].rpartition(" ")[0] if len(codes) > room else codes
    return _cut(f"{head}, faultCodes:{named}{more}{tail}")


def _places(group: CorrelatedEvent, inventory: Inventory | None) -> str:
    """Return where the chips are, by the driver's ids; of several, id by id."""
    listed = {} if inventory is None else {chip.physical_id: chip for chip in inventory.chips}
    chips: list[Chip] = [listed[number] for number in group.chips if number in listed]
    if len(chips) < len(group.chips):
        return f"physicalID:{_list(group.chips)}"
    if inventory is not None and inventory.family == _BY_LOGIC_ID:
        return f"logicID:{_list([chip.logic_id for chip in chips])}"
    cards = _list([chip.card_id for chip in chips])
    return f"cardID:{cards}, deviceID:{_list([chip.device_id for chip in chips])}"


def _list(numbers: Sequence[int]) -> str:
    return " ".join(map(str, numbers))


def _time(at_ms: int) -> str:
    """Return the time as upstream prints it: local time of its container, which is UTC by
    default.
    """
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _cut(message: str) -> str:
    """Return as much of ``message`` as the API server accepts."""
    encoded = message.encode()
    if len(encoded) <= _MAX_MESSAGE_BYTES:
        return message
    return encoded[: _MAX_MESSAGE_BYTES - 3].decode(errors="ignore") + "..."
