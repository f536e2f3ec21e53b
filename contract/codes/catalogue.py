"""What is known of each fault code: level, severity, name.

The tables under ``contract/data`` hold the facts that MindCluster 26.x ships. Source:
``docs/spec/device-plugin.md#2.7`` and appendix A.
"""

from __future__ import annotations

from functools import cache, cached_property
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from contract.codes.chip_codes import is_network, parse_code
from contract.codes.host_codes import HOST_CODES
from contract.codes.levels import ChipLevel, NodeLevel, Severity, SwitchLevel, most_serious
from contract.codes.policies import (
    DurationPolicy,
    FrequencyPolicy,
    PolicyTables,
    longest_release_ms,
    policies_by_code,
)
from contract.errors import ConfigurationError, Problem
from contract.record import Record
from contract.validation_texts import decode_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

T = TypeVar("T")
L = TypeVar("L", SwitchLevel, NodeLevel, ChipLevel)


class CodeFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row of ``codes.json``; ``severity`` is a word, and absent where none is known."""

    severity: str | None = None
    component: str = ""
    module: str = ""
    name_en: str = ""
    name_zh: str = ""


class LevelTables(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``levels.json``: level to codes, for each kind of subject."""

    about: str
    chip: dict[str, list[str]]
    switch: dict[str, list[str]]
    node: dict[str, list[str]]
    public: dict[str, list[str]]
    public_resources: list[str]


class CodeTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``codes.json``."""

    about: str
    codes: dict[str, CodeFacts]


class ReasonedLevel(NamedTuple):
    """A level of the subject's kind and the sentence that explains it."""

    level: str
    because: str


_SWITCH_TABLES = {
    "SeparateFault": SwitchLevel.SEPARATE,
    # Upstream appends these codes to Separate (device-plugin#5.2).
    "ResetFault": SwitchLevel.SEPARATE,
    "PreSeparateFault": SwitchLevel.PRE_SEPARATE,
    "RestartRequestFault": SwitchLevel.RESTART_REQUEST,
    "SubHealthFault": SwitchLevel.SUB_HEALTH_FAULT,
    "NotHandleFault": SwitchLevel.NOT_HANDLE,
}
_NODE_TABLES = {level.value: level for level in NodeLevel}
_PUBLIC_TABLES = {
    level.value: level
    for level in (
        ChipLevel.SEPARATE_NPU,
        ChipLevel.PRE_SEPARATE_NPU,
        ChipLevel.SUB_HEALTH_FAULT,
        ChipLevel.NOT_HANDLE_FAULT,
    )
}
# Above minor, or without a severity, an unlisted code isolates its chip (device-plugin#2.7).
_UNKNOWN_IS_HARMLESS = frozenset({Severity.SUGGESTION, Severity.MINOR})


class Catalogue(Record, frozen=True, dict=True):
    """Levels, severities, names and rules by code. Codes are as on the wire."""

    chip_levels: Mapping[str, ChipLevel]
    severities: Mapping[str, Severity]
    facts: Mapping[str, CodeFacts]
    switch_levels: Mapping[str, SwitchLevel]
    node_levels: Mapping[str, NodeLevel]
    public_levels: Mapping[str, ChipLevel] = msgspec.field(default_factory=dict)
    durations: Mapping[str, DurationPolicy] = msgspec.field(default_factory=dict)
    frequencies: Mapping[str, FrequencyPolicy] = msgspec.field(default_factory=dict)

    @cached_property
    def autofill_release_ms(self) -> int | None:
        """How long an isolation without a known reason lasts: the longest that a frequency rule
        gives; ``None``: until an operator ends it (``docs/spec/device-plugin.md#3.6``)."""
        return longest_release_ms(self.frequencies.values())

    def judge(self, code: str, severity: Severity | None) -> ReasonedLevel:
        """Return the level of a chip's code and the rule that decided.

        A code in no table is judged by what the driver calls it. A network code in no table is
        ``PreSeparateNPU`` whatever its severity.
        """
        level = self.chip_levels.get(code)
        if level is not None:
            return ReasonedLevel(level, f"{code} is {level} in the level table")
        if is_network(code):
            return ReasonedLevel(
                ChipLevel.PRE_SEPARATE_NPU, f"{code} is a network code in no level table"
            )
        word = "of unknown severity" if severity is None else severity.word
        because = f"{code} is in no level table and {word}"
        if severity in _UNKNOWN_IS_HARMLESS:
            return ReasonedLevel(ChipLevel.NOT_HANDLE_FAULT, because)
        return ReasonedLevel(ChipLevel.SEPARATE_NPU, because)

    def judge_by_word(self, code: str, word: int, listed: Iterable[str]) -> ReasonedLevel:
        """Return the level of a code without a known severity, on a chip with health word ``word``.

        ``listed`` are all codes of the chip. A code in no table is not to be handled unless the
        word shows that the chip is worse than those in the tables make it.
        """
        # The health word bounds severities of unlisted chip codes only (decision 20).
        if code in self.chip_levels or is_network(code):
            return self.judge(code, None)
        because = f"{code} is in no level table, and the health word of its chip is {word}"
        # The word is the maximum of all active severities, so no code is more serious (dcmi#5.5).
        if word <= Severity.MINOR:
            return ReasonedLevel(ChipLevel.NOT_HANDLE_FAULT, because)
        for other in listed:
            if other in self.chip_levels and (self.severity_of(other) or 0) >= word:
                return ReasonedLevel(
                    ChipLevel.NOT_HANDLE_FAULT, f"{because}, which {other} explains"
                )
        return ReasonedLevel(
            ChipLevel.SEPARATE_NPU, f"{because}, which no code in a table explains"
        )

    def level_of(self, code: str, severity: Severity | None) -> ChipLevel:
        """Return the level alone; see ``judge``."""
        return ChipLevel(self.judge(code, severity).level)

    def judge_switch(self, code: str) -> ReasonedLevel:
        """Return the level of a code of a switch, compared as text; empty for one in no table.

        Source: docs/spec/device-plugin.md#5.2.
        """
        return _by_table(self.switch_levels.get(code), code, "switches")

    def judge_node(self, code: str) -> ReasonedLevel:
        """Return the level of a code of the BMC; empty for one in no table
        (``docs/spec/noded.md#3.4``).

        A code of a host check that no table names is not to be handled.
        """
        level = self.node_levels.get(code)
        if level is None and code in HOST_CODES:
            message = f"{code} ({HOST_CODES[code].name}) is in no level table of the server"
            return ReasonedLevel(NodeLevel.NOT_HANDLE_FAULT, message)
        return _by_table(level, code, "the server")

    def judge_public(self, code: str) -> ReasonedLevel:
        """Return the level of a public fault; empty for one in no table (``clusterd#4.5``)."""
        return _by_table(self.public_levels.get(code), code, "public faults")

    def severity_of(self, code: str) -> Severity | None:
        """Return the severity with which the driver raises ``code``, if that is known."""
        return self.severities.get(code)


def _by_table(
    level: SwitchLevel | NodeLevel | ChipLevel | None, code: str, of: str
) -> ReasonedLevel:
    if level is None:
        return ReasonedLevel("", f"{code} is in no level table of {of}: it is only shown")
    return ReasonedLevel(level, f"{code} is {level} in the level table of {of}")


def build(levels: LevelTables, table: CodeTable, source: str) -> Catalogue:
    """Check the tables whole and make a catalogue of them.

    Raises ``ConfigurationError`` with everything that is wrong.
    """
    problems: list[Problem] = []
    by_code: dict[str, list[ChipLevel]] = {}
    for name, codes in levels.chip.items():
        if name not in set(ChipLevel):
            problems.append(Problem(f"chip.{name}", f"{name!r} is not a valid level of a chip"))
            continue
        for index, code in enumerate(codes):
            _check_code(code, f"chip.{name}[{index}]", problems)
            by_code.setdefault(code, []).append(ChipLevel(name))
    known_switch_codes = {code for codes in levels.switch.values() for code in codes}
    severities = dict.fromkeys(by_code, Severity.MINOR)  # what the table leaves out is minor
    words = {severity.word: severity for severity in Severity}
    for code, facts in table.codes.items():
        # Codes of switches are texts of another form (device-plugin#5.2).
        if code not in known_switch_codes:
            _check_code(code, f"codes.{code}", problems)
        if facts.severity is None:
            continue
        if facts.severity not in words:
            message = f"{facts.severity!r} is none of {', '.join(words)}"
            problems.append(Problem(f"codes.{code}.severity", message))
            continue
        severities[code] = words[facts.severity]
    switch_levels = _levels_of(levels.switch, _SWITCH_TABLES, "switch", problems)
    node_levels = _levels_of(levels.node, _NODE_TABLES, "node", problems)
    public_levels = _levels_of(levels.public, _PUBLIC_TABLES, "public", problems)
    if problems:
        raise ConfigurationError(source, problems)
    # A code in several lists has the higher level, as the shipped ``A2301001`` (device-plugin#2.7).
    chip_levels = {code: most_serious(named) for code, named in by_code.items()}
    return Catalogue(
        chip_levels, severities, table.codes, switch_levels, node_levels, public_levels
    )


def _levels_of(
    table: Mapping[str, list[str]], level_of: Mapping[str, L], kind: str, problems: list[Problem]
) -> dict[str, L]:
    """Return the level by code; the most serious one for a code in several lists."""
    problems += [
        Problem(f"{kind}.{name}", f"{name!r} is none of {', '.join(level_of)}")
        for name in table
        if name not in level_of
    ]
    levels: dict[str, L] = {}
    for name, level in level_of.items():  # most serious first
        for code in table.get(name, ()):
            levels.setdefault(code, level)
    return levels


def _check_code(code: str, where: str, problems: list[Problem]) -> None:
    try:
        written = parse_code(code)
    except ValueError as error:
        problems.append(Problem(where, str(error)))
        return
    # Tables are searched by the text on the wire; another spelling would never match.
    if written != code:
        problems.append(Problem(where, f"{code!r} must be written {written!r}"))


@cache
def shipped() -> Catalogue:
    """Return the catalogue of the tables in this package. Read once."""
    levels, table = shipped_levels(), read_table("codes.json", CodeTable)
    policies = read_table("policies.json", PolicyTables)
    return replace(
        build(levels, table, "contract/data"),
        durations=policies_by_code(
            (policy.event_id, policy.policy) for policy in policies.duration
        ),
        frequencies=policies_by_code(
            (policy.event_id, policy.policy) for policy in policies.frequency
        ),
    )


def shipped_levels() -> LevelTables:
    """Return all level tables in this package, of switches, nodes and public faults as well."""
    return read_table("levels.json", LevelTables)


def read_table(name: str, model: type[T]) -> T:
    """Read one table of this package."""
    content = (resources.files("contract") / "data" / name).read_bytes()
    try:
        return msgspec.json.decode(content, type=model)
    except msgspec.MsgspecError as error:
        raise ConfigurationError(
            f"contract/data/{name}", [Problem("$", decode_text(error))]
        ) from None
