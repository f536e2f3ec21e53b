"""Messages about public faults, and what a reader of them refuses.

Source: ``docs/spec/clusterd.md#4.1`` and 4.2.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from contract.errors import DocumentError, Problem, quoted
from contract.go import encode as go_json
from contract.go.decode import GoStruct, Int32, Int64, decode
from pacing.cooperative import run_to_completion

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from pacing.cooperative import Work

DATA_KEY = "PublicFault"
VERSION = "1.0"
OLDEST_MS = 1_735_689_600_000
"""2025-01-01: no time of a message may be before it."""

# Upstream demands exactly 13 digits (clusterd#4.2).
_NEWEST_MS = 9_999_999_999_999
# Matched as a whole: ``$`` of Python accepts a newline at the end (clusterd#4.2).
_ID = re.compile(r"[a-zA-Z0-9\-_.]{8,128}")
_NODE_NAME = re.compile(r"[a-z0-9]([a-z0-9\-.]{0,251}[a-z0-9])?")
# Go's ``\S`` excludes these four and the space only; Python's excludes more (clusterd#4.2).
_DESCRIPTION = re.compile(r"[^\t\n\f\r]{0,512}")
_TYPES = ("NPU", "Node", "Network", "Storage")
_ASSERTIONS = ("occur", "recover", "once")
CODE_BYTES = 9
MAX_FAULTS = 100
MAX_LOCATIONS, _LOCATION_KEY_BYTES, _LOCATION_VALUE_BYTES = 10, 16, 128
MAX_INFLUENCES = 1000
MAX_DEVICES = 32
LAST_DEVICE = 31


class Influence(GoStruct, frozen=True):
    """The chips of a node that a fault concerns; ``node_sn`` counts where there is no name."""

    node_name: str = msgspec.field(default="", name="nodeName")
    node_sn: str = msgspec.field(default="", name="nodeSN")
    device_ids: list[Int32] | None = msgspec.field(default=None, name="deviceIds")


class PublicFaultEntry(GoStruct, frozen=True):
    """One fault of a message; ``fault_time`` is epoch milliseconds."""

    fault_id: str = msgspec.field(default="", name="faultId")
    fault_type: str = msgspec.field(default="", name="faultType")
    fault_code: str = msgspec.field(default="", name="faultCode")
    fault_time: Int64 = msgspec.field(default=0, name="faultTime")
    assertion: str = ""
    fault_location: dict[str, str] | None = msgspec.field(default=None, name="faultLocation")
    influence: list[Influence] | None = None
    description: str = ""


class PublicFault(GoStruct, frozen=True):
    """A message of one resource; ``timestamp`` is epoch milliseconds."""

    id: str = ""
    timestamp: Int64 = 0
    version: str = ""
    resource: str = ""
    faults: list[PublicFaultEntry] | None = None


def encode_public_fault(message: PublicFault) -> dict[str, str]:
    """Return the data of the ConfigMap that carries ``message``."""
    return {DATA_KEY: go_json.encode(msgspec.to_builtins(message))}


def decode_public_fault(document: str, data: dict[str, str]) -> PublicFault:
    """Return the message in a ConfigMap, not judged yet. Raises ``DocumentError``."""
    text = data.get(DATA_KEY)
    if text is None:
        raise DocumentError(document, DATA_KEY, "the data key is missing")
    return decode(text, PublicFault, document, DATA_KEY)


def accepted(
    message: PublicFault,
    document: str,
    *,
    codes: Collection[str],
    resources: Collection[str],
) -> tuple[tuple[PublicFaultEntry, ...], tuple[Problem, ...]]:
    """Return the faults of ``message`` that a reader takes, and why it takes no others.

    ``codes`` and ``resources`` are the configured ones. No node is known by its serial number.
    Raises ``DocumentError`` for a message that is refused as a whole.
    """
    return run_to_completion(
        accepting(
            message,
            document,
            codes=codes,
            resources=resources,
            is_serial=lambda _: False,
            ending=(),
        )
    )


def accepting(
    message: PublicFault,
    document: str,
    *,
    codes: Collection[str],
    resources: Collection[str],
    is_serial: Callable[[str], bool],
    ending: Collection[str],
) -> Work[tuple[tuple[PublicFaultEntry, ...], tuple[Problem, ...]]]:
    """Decode the same fault by fault; return the size of each, too.

    ``is_serial``: whether a node has this serial number. Of the codes in ``ending`` recoveries are
    taken as well: faults of them stand that were configured when they occurred.
    """
    faults = message.faults or []
    for where, wrong in (
        ("id", _ID.fullmatch(message.id) is None),
        ("timestamp", not _is_time(message.timestamp)),
        ("version", message.version != VERSION),
        ("resource", message.resource not in resources),
        ("faults", not 1 <= len(faults) <= MAX_FAULTS),
    ):
        if wrong:
            value = len(faults) if where == "faults" else getattr(message, where)
            raise DocumentError(document, where, f"{_shown(value)} is refused")
    good: list[PublicFaultEntry] = []
    problems: list[Problem] = []
    for index, fault in enumerate(faults):
        taken = {*codes, *ending} if ending and fault.assertion == "recover" else codes
        wrong_with = next(_wrong_with(fault, taken, is_serial), None)
        if wrong_with is None:
            good.append(fault)
        else:
            member, value = wrong_with
            problems.append(Problem(f"faults[{index}].{member}", f"{_shown(value)} is refused"))
        yield 1 + len(fault.influence or ())
    # A message of which no fault is left is refused as a whole (clusterd#4.2).
    if not good:
        first = problems[0]
        raise DocumentError(document, first.where, f"{first.what}, and no other fault is left")
    return tuple(good), tuple(problems)


def _shown(value: object) -> str:
    """Return ``value`` for a line of a log or an answer."""
    return quoted(repr(value))


def _wrong_with(
    fault: PublicFaultEntry, codes: Collection[str], is_serial: Callable[[str], bool]
) -> Iterator[tuple[str, object]]:
    """Yield members and values for which ``fault`` is refused, in the order of their checks."""
    if _ID.fullmatch(fault.fault_id) is None:
        yield "faultId", fault.fault_id
    if fault.fault_type not in _TYPES:
        yield "faultType", fault.fault_type
    # Upstream counts bytes, not characters (clusterd#4.2).
    if len(fault.fault_code.encode()) != CODE_BYTES or fault.fault_code not in codes:
        yield "faultCode", fault.fault_code
    if not _is_time(fault.fault_time):
        yield "faultTime", fault.fault_time
    if fault.assertion not in _ASSERTIONS:
        yield "assertion", fault.assertion
    location = fault.fault_location or {}
    if len(location) > MAX_LOCATIONS or any(
        len(key.encode()) > _LOCATION_KEY_BYTES or len(value.encode()) > _LOCATION_VALUE_BYTES
        for key, value in location.items()
    ):
        yield "faultLocation", location
    influence = fault.influence or []
    if not 1 <= len(influence) <= MAX_INFLUENCES:
        yield "influence", len(influence)
    for index, about in enumerate(influence):
        if not _is_about_a_node(about, is_serial):
            yield f"influence[{index}]", about.node_name or about.node_sn
        if not _are_devices(about.device_ids or []):
            yield f"influence[{index}].deviceIds", about.device_ids
    if _DESCRIPTION.fullmatch(fault.description) is None:
        yield "description", fault.description


def _is_about_a_node(about: Influence, is_serial: Callable[[str], bool]) -> bool:
    """Return whether ``about`` names a node: upstream gives others to some node (defect B9)."""
    if about.node_name:
        return _NODE_NAME.fullmatch(about.node_name) is not None
    return bool(about.node_sn) and is_serial(about.node_sn)


def _are_devices(devices: list[int]) -> bool:
    return (
        1 <= len(devices) <= MAX_DEVICES
        and len(set(devices)) == len(devices)
        and all(0 <= device <= LAST_DEVICE for device in devices)
    )


def _is_time(at_ms: int) -> bool:
    # Upstream does not compare the time with its clock either (clusterd#4.2).
    return OLDEST_MS <= at_ms <= _NEWEST_MS
