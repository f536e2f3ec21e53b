"""``NodeDConfiguration.json``: which code of the server's parts is at which level.

Source: ``noded#3.2``. One bad code refuses the whole document there, and so it does here;
but a code at two levels is found at once, too (D-07), and everything that is wrong is reported.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias

from contract.codes.levels import NodeLevel
from contract.errors import ConfigurationError, DocumentError, FoundProblems, Problem, quoted
from contract.go.decode import GoStruct, Pairs, describe, folded, parsed
from contract.go.dropped import dropped
from contract.record import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

NODE_CONFIGURATION_KEY = "NodeDConfiguration.json"
_ROOT = "FaultTypeCode"
_LEVELS = {
    "NotHandleFaultCodes": NodeLevel.NOT_HANDLE_FAULT,
    "PreSeparateFaultCodes": NodeLevel.PRE_SEPARATE_FAULT,
    "SeparateFaultCodes": NodeLevel.SEPARATE_FAULT,
}
_NAMES = {folded(name): name for name in _LEVELS}
_Found: TypeAlias = "dict[str, list[str | None]]"
# Upstream accepts letters beyond F as well (noded#3.2); they get a warning here (D-23).
_CODE = re.compile(r"[0-9A-Z]{8}")
_HEXADECIMAL = re.compile(r"[0-9A-F]{8}")


class _NodeCodeLists(GoStruct, frozen=True):
    NotHandleFaultCodes: list[str] | None = None
    PreSeparateFaultCodes: list[str] | None = None
    SeparateFaultCodes: list[str] | None = None


class _NodeLevelsDocument(GoStruct, frozen=True):
    FaultTypeCode: _NodeCodeLists | None = None


class NodeLevels(Record, frozen=True):
    """Level by code in upper case, and what has not the effect it seems to have."""

    levels: Mapping[str, NodeLevel]
    problems: tuple[Problem, ...]


def read_node_levels(text: str) -> NodeLevels:
    """Read a ``NodeDConfiguration.json``. One that names no code is valid: then none is known.

    Raises ``ConfigurationError`` with everything for which it is refused.
    """
    try:
        tree = parsed(text, NODE_CONFIGURATION_KEY)
    except DocumentError as error:
        raise ConfigurationError(error.document, [Problem(error.where, error.what)]) from None
    refused, named = FoundProblems(), FoundProblems()
    levels: dict[str, NodeLevel] = {}
    places: dict[str, str] = {}
    for member, codes in _lists(tree, refused).items():
        for index, entry in enumerate(codes):
            where = f"$.{_ROOT}.{member}[{index}]"
            if entry is None:
                continue
            # NodeD compares in upper case, so either case may be written (noded#3.2).
            code = _upper(entry)
            if not _CODE.fullmatch(code):
                message = f"{quoted(entry)!r} is not a valid code: those have 8 letters and digits"
                refused.add(Problem(where, message))
            elif levels.setdefault(code, _LEVELS[member]) is not _LEVELS[member]:
                refused.add(Problem(where, f"{code} is on another level, too: {places[code]}"))
            # A code may be twice on one level: NodeD drops the second one (noded#3.2).
            elif code not in places:
                places[code] = f"{member}[{index}]"
                if not _HEXADECIMAL.fullmatch(code):
                    message = f"{code} never comes from a BMC: its codes are hexadecimal numbers"
                    named.add(Problem(where, message))
    if refused.all():
        # Unknown members refuse nothing by themselves.
        refused.extend(dropped(text, _NodeLevelsDocument))
        raise ConfigurationError(NODE_CONFIGURATION_KEY, refused.all())
    named.extend(dropped(text, _NodeLevelsDocument))
    return NodeLevels(levels, named.all())


def _lists(tree: Any, refused: FoundProblems) -> _Found:
    """Return the lists of codes by their names; of a name given twice, the last one counts."""
    if not isinstance(tree, Pairs) and tree is not None:
        refused.add(_wrong_type("$", "an object", tree))
        return {}
    lists: _Found | None = None
    for name, value in tree or ():
        if folded(name) == folded(_ROOT):
            lists = None if value is None else _members(value, refused)
    if lists is None:
        message = "is missing or null; a table without any code is {}"
        refused.add(Problem(f"$.{_ROOT}", message))
        return {}
    return lists


def _members(value: Any, refused: FoundProblems) -> _Found:
    lists: _Found = {}
    if not isinstance(value, Pairs):
        refused.add(_wrong_type(f"$.{_ROOT}", "an object", value))
        return lists
    for name, entries in value:
        member = _NAMES.get(folded(name))
        if member is None:
            continue
        where = f"$.{_ROOT}.{member}"
        if entries is None:
            # In Go, null sets a slice to nil, also one that an earlier duplicate has filled.
            lists.pop(member, None)
        elif not isinstance(entries, list) or isinstance(entries, Pairs):
            refused.add(_wrong_type(where, "an array", entries))
        else:
            lists[member] = [
                _text(entry, f"{where}[{index}]", refused) for index, entry in enumerate(entries)
            ]
    return lists


def _text(entry: Any, where: str, refused: FoundProblems) -> str | None:
    """Return the entry; ``None`` for one that has been refused."""
    if entry is None:
        return ""
    if type(entry) is not str:  # numbers with a fraction are a kind of text there
        refused.add(_wrong_type(where, "a text", entry))
        return None
    return entry


def _wrong_type(where: str, expected: str, value: Any) -> Problem:
    return Problem(where, f"must be {expected}, is {describe(value)}")


def _upper(text: str) -> str:
    """Return ``text`` in upper case as Go does: a letter stays one letter."""
    # Python makes two letters of some, as SS of a sharp s.
    return "".join(up if len(up := letter.upper()) == 1 else letter for letter in text)
