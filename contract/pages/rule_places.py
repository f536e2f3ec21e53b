"""Finds the rules that decide the level of a code: in which file, under which key, on which line.

The texts are those in force, so they can be decoded. Lines begin with 1.
"""

from __future__ import annotations

import re
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

from contract.codes.reference import CodeKind, raising_rules
from contract.operator_rules.customization import CUSTOMIZATION_KEY
from contract.operator_rules.fault_codes import FAULT_CODE_KEY
from contract.operator_rules.fault_configuration import (
    CONFIG_MAPS,
    DOCUMENTS,
    ConfigurationPlace,
    InForce,
)
from contract.operator_rules.node_levels import NODE_CONFIGURATION_KEY
from contract.operator_rules.switch_levels import SWITCH_FAULT_CODE_KEY
from contract.pages.faults import FaultRule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from contract.codes.catalogue import Catalogue

_LEVELS, _POLICIES = "levels.json", "policies.json"
_KEY = re.compile(r'"([^"\\]+)"\s*:')
_RAISING = re.compile(r'"((?:Fault)?(?:Frequency|Duration))"\s*:', re.IGNORECASE)
_KINDS = re.compile(r'"(chip|switch|node|public|public_resources)"\s*:')
_DOCUMENT_OF = {
    CodeKind.CHIP: FAULT_CODE_KEY,
    CodeKind.SWITCH: SWITCH_FAULT_CODE_KEY,
    CodeKind.NODE: NODE_CONFIGURATION_KEY,
}
_SUBJECTS = {
    "switch": CodeKind.SWITCH,
    "host": CodeKind.NODE,
    "storage": CodeKind.PUBLIC,
    "dpu": CodeKind.DPU,
}


class _RulePlace(NamedTuple):
    key: str
    line: int


def kind_of_subject(kind: str) -> CodeKind:
    """Return what codes on a subject of this ``kind`` are about; of others they are of chips."""
    return _SUBJECTS.get(kind, CodeKind.CHIP)


def rules_of(
    in_force: InForce, tables: Catalogue, kind: CodeKind, code: str
) -> Iterator[FaultRule]:
    """Yield the rules about ``code``: its entry in the level table, then what raises the level.

    ``tables`` are those that ``in_force`` makes. A code in no table has no entry, nor has one of a
    DPU: its level is in the document that reports it.
    """
    level = {
        CodeKind.CHIP: tables.chip_levels,
        CodeKind.SWITCH: tables.switch_levels,
        CodeKind.NODE: tables.node_levels,
        CodeKind.PUBLIC: tables.public_levels,
        CodeKind.DPU: {},
    }[kind].get(code)
    if level is not None:
        file, text = _text_of(in_force, _DOCUMENT_OF.get(kind), _LEVELS)
        is_shipped = file.endswith(_LEVELS)
        mentions = [
            _RulePlace(_last(_KEY, text, at), _line(text, at))
            for at in _mentions(text, code)
            if not is_shipped or _last(_KINDS, text, at) == kind
        ]
        # A code in several lists has the most serious of their levels.
        deciding = [mention for mention in mentions if mention.key.startswith(level)] or mentions
        for mention in deciding[:1]:
            yield FaultRule(file, mention.key, mention.line, f"Its level is {level}.")
    if kind is not CodeKind.CHIP:
        return
    file, text = _text_of(in_force, CUSTOMIZATION_KEY, _POLICIES)
    # Reversed, so that of several mentions under one key the first stays.
    raising = {_last(_RAISING, text, at): at for at in reversed(list(_mentions(text, code)))}
    for name, rule in raising_rules(code, tables).items():
        for key, at in raising.items():
            # Of several entries with one code the first counts (device-plugin#3.3).
            if key.lower().endswith(name):
                yield FaultRule(file, key, _line(text, at), rule)


def _text_of(in_force: InForce, document: str | None, shipped: str) -> tuple[str, str]:
    """Return the name of the file in force, and its text."""
    text = None if document is None else getattr(in_force.texts, DOCUMENTS[document])
    if document is None or text is None:
        file = resources.files("contract") / "data" / shipped
        return f"contract/data/{shipped}", file.read_text(encoding="utf-8")
    if in_force.place_of(document) is ConfigurationPlace.FILE:
        return f"{document} of --fault-config-dir", text
    place = next(config_map for config_map in CONFIG_MAPS if document in config_map.documents)
    return f"{document} of ConfigMap {place.namespace}/{place.name}", text


def _mentions(text: str, code: str) -> Iterator[int]:
    """Yield where ``code`` is a string of its own; leading zeros and case may differ."""
    digits = code.lstrip("0") or "0"
    written = re.compile(rf'"\+?0*{re.escape(digits)}"\s*[,\]]', re.IGNORECASE)
    return (match.start() for match in written.finditer(text))


def _last(names: re.Pattern[str], text: str, before: int) -> str:
    last = ""
    for match in names.finditer(text, 0, before):
        last = match[1]
    return last


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1
