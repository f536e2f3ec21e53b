"""Describe each fault code for people: its name, its part, what follows for jobs, what to do.

A field is ``known`` when a table of the vendor or of the specification gives it for this code. It
``follows`` when it is derived: the part and the kind of a fault from its code
(``docs/spec/dcmi.md#5.3``, 5.4, 6, ``docs/spec/clusterd.md#4.5``), the effect on jobs and the
remedy from its level (``docs/spec/consumers.md#1.10``). Names are the vendor's; one that is missing
stays missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from contract.codes.catalogue import read_table, shipped
from contract.codes.chip_codes import is_network, parse_code
from contract.codes.dpu_codes import DPU_CODES, dpu_code
from contract.codes.host_codes import HOST_CODES
from contract.codes.levels import NodeLevel
from contract.plural import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from contract.codes.catalogue import Catalogue

_REMEDIES = "remedies.json"
_CODES = "contract/data/codes.json"
_LEVELS = "contract/data/levels.json"
_EFFECTS = "docs/spec/consumers.md#1.10"
_LAYOUT = "docs/spec/dcmi.md#5.3, 5.4"
_SWITCH_LAYOUT = "docs/spec/dcmi.md#6"
_PUBLIC_LAYOUT = "docs/spec/clusterd.md#4.5"
_DIAGNOSIS = "MindCluster 26.x, kg-config.json of FaultDiag"
_GUIDE = "MindCluster 26.x, guide to fault levels, table 5"
_HOST_CHECKS = "contract/codes/host_codes.py"
_DPU_SPEC = "docs/spec/dpu-info.md"
# What a driver reports has 32 bits; longer codes are made by programs (device-plugin#0).
_DRIVER_DIGITS = 8
_SWITCH_PARTS = 4
# By the first digit of a code, of which upstream checks nothing (clusterd#4.5).
_PUBLIC_COMPONENTS = {"0": "NPU", "1": "Server", "2": "Network", "3": "Storage"}
_PEERS = {"cpu": "CPU", "npu": "NPU", "L2": "L2 switch"}


class CodeKind(StrEnum):
    """What a code is about, which decides the level table that holds it."""

    CHIP = "chip"
    SWITCH = "switch"
    NODE = "node"
    PUBLIC = "public"
    DPU = "dpu"


_OF_KIND = {
    CodeKind.CHIP: ("NPU", "Fault of a chip"),
    CodeKind.SWITCH: ("Switch", "Fault of a switch"),
    CodeKind.NODE: ("Server", "Fault of the server, named in the event list of its BMC"),
    CodeKind.PUBLIC: (
        "Reported by another program",
        "Public fault, described by the program that reports it",
    ),
    CodeKind.DPU: ("NIC or DPU", "Fault of an RDMA NIC or a DPU"),
}
"""Component and summary that each code of a kind has at least."""


class CodeReference(msgspec.Struct, frozen=True, kw_only=True):
    """What a person needs to know of one code.

    ``name_en`` and ``name_zh`` are the vendor's, empty where the vendor's are not known, and our
    own for codes of host checks;
    ``summary`` is ``name_en``, or what follows from the code. ``rules`` are sentences: what
    raises the level. ``severity`` is a word, empty
    where no driver gives one. ``known`` and ``follows`` map the other fields to where they are
    from; a field that is in neither is empty.
    """

    code: str
    kind: CodeKind
    level: str = ""
    severity: str = ""
    name_en: str = ""
    name_zh: str = ""
    summary: str = ""
    component: str = ""
    module: str = ""
    effect: str = ""
    remedy: str = ""
    rules: tuple[str, ...]
    known: Mapping[str, str]
    follows: Mapping[str, str]

    def name(self, language: str) -> str:
        """Return the vendor's name in ``language`` (``en`` or ``zh``), else the summary."""
        return (self.name_zh if language == "zh" else self.name_en) or self.summary


class LevelText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What follows for jobs at a level (``short``: in few words), and what an operator does."""

    short: str
    effect: str
    remedy: str


class _MadeUp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    summary: str
    module: str
    source: str


class _Remedies(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    about: str
    levels: dict[str, dict[str, LevelText]]


class _ReferenceFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    about: str
    modules: dict[str, str]
    states: dict[str, str]
    switch_events: dict[str, dict[str, str]]
    made_up: dict[str, _MadeUp]


class _Facts:
    """Collects the fields of one code, each with its source."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.known: dict[str, str] = {}
        self.follows: dict[str, str] = {}

    def know(self, source: str, **fields: str | None) -> None:
        self._add(self.known, source, fields)

    def follow(self, source: str, **fields: str | None) -> None:
        self._add(self.follows, source, fields)

    def _add(self, sources: dict[str, str], source: str, fields: Mapping[str, str | None]) -> None:
        for name, value in fields.items():
            # The first source of a field counts, so tables come before what follows from the code.
            if value and name not in self.values:
                self.values[name] = value
                sources[name] = source


def describe_code(text: str) -> CodeReference | None:
    """Return what is known of the code in ``text``; ``None`` for one that is in no table.

    Codes of switches are compared as they are; others may be in lower case and begin with ``0x``.
    A code of a host check is described as one of the node. A code of a DPU counts with the zero
    before it that it has as a public fault.
    """
    text = dpu_code(text.strip())
    return _references().get(text) or _references().get(_written(text))


def all_codes() -> Iterator[CodeReference]:
    """Return the description of each code in a level table: chip, switch, node, public, DPU."""
    yield from _references().values()


def level_texts(kind: CodeKind) -> Mapping[str, LevelText]:
    """Return the texts of the levels of ``kind``, most serious first."""
    return _remedies()[kind]


def text_of_level(kind: CodeKind, code: str, level: str) -> LevelText | None:
    """Return what follows for jobs from ``code`` at ``level``; ``None`` for an unknown level.

    A network code of a chip at a level that isolates concerns only jobs with several tasks.
    """
    levels = _remedies()
    if kind is CodeKind.CHIP and is_network(code):
        return levels["network"].get(level) or levels[kind].get(level)
    return levels[kind].get(level)


def _written(text: str) -> str:
    try:
        return parse_code(text)
    except ValueError:
        return text


@cache
def _references() -> Mapping[str, CodeReference]:
    catalogue = shipped()
    host = dict.fromkeys(HOST_CODES, NodeLevel.NOT_HANDLE_FAULT)
    return {
        code: _describe(code, kind, level)
        for kind, levels in (
            (CodeKind.CHIP, catalogue.chip_levels),
            (CodeKind.SWITCH, catalogue.switch_levels),
            (CodeKind.NODE, {**catalogue.node_levels, **host}),
            (CodeKind.PUBLIC, catalogue.public_levels),
            (CodeKind.DPU, {code: fault.level for code, fault in DPU_CODES.items()}),
        )
        for code, level in levels.items()
    }


@cache
def _reference() -> _ReferenceFile:
    return read_table("reference.json", _ReferenceFile)


@cache
def _remedies() -> Mapping[str, Mapping[str, LevelText]]:
    return read_table(_REMEDIES, _Remedies).levels


def _describe(code: str, kind: CodeKind, level: str) -> CodeReference:
    facts = _Facts()
    source = {CodeKind.DPU: _DPU_SPEC}.get(kind, _HOST_CHECKS if code in HOST_CODES else _LEVELS)
    facts.know(source, level=level)
    _add_tables(facts, code)
    _add_summary(facts)
    if kind is CodeKind.SWITCH:
        _add_switch_layout(facts, code)
    elif kind is CodeKind.PUBLIC:
        _add_public_layout(facts, code)
    elif kind is CodeKind.CHIP and len(code) == _DRIVER_DIGITS:
        _add_layout(facts, int(code, 16))
    component, summary = _OF_KIND[kind]
    facts.follow(_LEVELS, component=component, summary=summary)
    severity = shipped().severities.get(code)
    if kind is CodeKind.CHIP and severity is not None and len(code) == _DRIVER_DIGITS:
        facts.follow("docs/spec/dcmi.md#5.5", severity=severity.word)
    _add_level(facts, code, kind, level)
    return CodeReference(
        code=code,
        kind=kind,
        **facts.values,
        rules=tuple(raising_rules(code, shipped()).values()) if kind is CodeKind.CHIP else (),
        known=facts.known,
        follows=facts.follows,
    )


def raising_rules(code: str, tables: Catalogue) -> Mapping[str, str]:
    """Return what raises the level of a chip's code, as a sentence for each kind of rule."""
    texts = {}
    duration = tables.durations.get(code)
    if duration is not None:
        texts["duration"] = (
            f"The level rises to {duration.level} when the fault holds for more than "
            f"{_span(duration.fault_timeout_ms)}. It falls again when the "
            f"fault has been gone for {_span(duration.recover_timeout_ms)}."
        )
    frequency = tables.frequencies.get(code)
    if frequency is not None:
        until = "an operator releases the chip"
        if frequency.release_ms is not None:
            until = f"the fault has been gone for {_span(frequency.release_ms)}"
        texts["frequency"] = (
            f"The chip is at {frequency.level} when the fault occurs "
            f"{plural(frequency.times, 'time')} in {_span(frequency.window_seconds * 1000)}, "
            f"until {until}."
        )
    return texts


def _span(milliseconds: int) -> str:
    """Return a time in the largest unit of which it is a whole number."""
    for unit_ms, unit in ((3_600_000, "hour"), (60_000, "minute"), (1000, "second")):
        if milliseconds >= unit_ms and milliseconds % unit_ms == 0:
            return plural(milliseconds // unit_ms, unit)
    return plural(milliseconds, "millisecond")


def _add_tables(facts: _Facts, code: str) -> None:
    row = shipped().facts.get(code)
    if row is not None:
        is_in_guide = code.isalnum() and len(code) != _DRIVER_DIGITS
        facts.know(
            _GUIDE if is_in_guide else _DIAGNOSIS,
            name_en=row.name_en,
            name_zh=row.name_zh,
            component=row.component,
            module=row.module,
        )
        facts.know(_CODES, severity=row.severity)
    made_up = _reference().made_up.get(code)
    if made_up is not None:
        facts.know(made_up.source, summary=made_up.summary, module=made_up.module)
    check = HOST_CODES.get(code)
    if check is not None:
        facts.know(
            _HOST_CHECKS,
            name_en=check.name,
            name_zh=check.name_zh,
            module=check.part,
            component="Host",
            remedy=check.remedy,
        )
    dpu = DPU_CODES.get(code)
    if dpu is not None:
        facts.know(_DPU_SPEC, name_en=dpu.name)


def _add_summary(facts: _Facts) -> None:
    name = facts.values.get("name_en")
    if name:
        facts.know(facts.known["name_en"], summary=name)


def _add_layout(facts: _Facts, number: int) -> None:
    """Add what the bits of a driver's code mean."""
    # Bits 27 to 17 of the layout in dcmi#5.3.
    module = (number >> 17) & 0x7FF
    sensor, state = (number >> 9) & 0xFF, number & 0x1FF
    name = _reference().modules.get(f"{module:X}")
    facts.follow(_LAYOUT, module=name or f"module {module:X} (not in the tables)")
    # A flag of the black box changes the meaning of the other bits (dcmi#5.3).
    if (number >> 28) & 0x3:
        source = f"record of the black box, severity field {(number >> 25) & 0x7}"
    else:
        source = _reference().states.get(f"{sensor:02X}/{state:X}", "")
        source = source or f"state {state:X} of sensor type {sensor:02X}"
    # Environment 01 is the host, 10 the device (dcmi#5.3).
    side = "host" if number >> 30 == 1 else "chip"
    where = name or f"Module {module:X}"
    facts.follow(_LAYOUT, summary=f"{where}: {source}, raised by the {side}")


def _add_switch_layout(facts: _Facts, code: str) -> None:
    parts = code.strip("[]").split(",")
    if len(parts) != _SWITCH_PARTS:
        return
    event = _reference().switch_events.get(parts[0].removeprefix("0x"), {}).get(parts[1])
    peer = _PEERS.get(parts[2])
    event_text = event or f"event {parts[0]}, type {parts[1]}"
    facts.follow(
        _SWITCH_LAYOUT, summary=f"Switch: {event_text}{f' (to the {peer})' if peer else ''}"
    )
    facts.follow(_SWITCH_LAYOUT, module=f"port to the {peer}" if peer else "chip")


def _add_public_layout(facts: _Facts, code: str) -> None:
    """Add what the first digit of a public fault's code means."""
    component = _PUBLIC_COMPONENTS.get(code[0])
    if component is not None:
        facts.follow(
            _PUBLIC_LAYOUT,
            component=component,
            summary=f"{component}: public fault, described by the program that reports it",
        )


def _add_level(facts: _Facts, code: str, kind: CodeKind, level: str) -> None:
    text = text_of_level(kind, code, level)
    assert text is not None, f"{_REMEDIES} has no text for {kind} {level}"
    facts.follow(_EFFECTS, effect=text.effect, remedy=text.remedy)
