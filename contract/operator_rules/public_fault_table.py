"""Which public faults are taken, and at which levels.

Source: ``clusterd#4.5``. What upstream skips without a word is a ``Problem`` here, with the
same effect; a document that leaves nothing to be taken is refused (defect B21).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import msgspec

from contract.codes.catalogue import shipped, shipped_levels
from contract.codes.levels import ChipLevel
from contract.documents.public_fault import CODE_BYTES
from contract.errors import DocumentError, FoundProblems, Problem, quoted
from contract.go.decode import GoStruct, decode
from contract.go.dropped import dropped

TABLE_KEY = "publicCustomization.json"
"""Name of the file, and key in a ConfigMap."""

# Upstream's limit for the file (clusterd#4.5).
MAX_BYTES = 10 * 1024 * 1024


class _Codes(GoStruct, frozen=True):
    not_handle: list[str] | None = msgspec.field(default=None, name="NotHandleFaultCodes")
    sub_health: list[str] | None = msgspec.field(default=None, name="SubHealthFaultCodes")
    separate: list[str] | None = msgspec.field(default=None, name="SeparateNPUCodes")
    pre_separate: list[str] | None = msgspec.field(default=None, name="PreSeparateNPUCodes")


class _Table(GoStruct, frozen=True):
    codes: _Codes = msgspec.field(default=_Codes(), name="publicFaultCode")
    resources: list[str] | None = msgspec.field(default=None, name="publicFaultResource")


class PublicFaultTable(msgspec.Struct, frozen=True):
    """Level by code, and which resources may report faults."""

    levels: Mapping[str, ChipLevel]
    resources: frozenset[str]


@cache
def shipped_table() -> PublicFaultTable:
    """Return what this package ships."""
    resources = frozenset(shipped_levels().public_resources)
    return PublicFaultTable(shipped().public_levels, resources)


def read_public_fault_table(
    text: str, document: str
) -> tuple[PublicFaultTable, tuple[Problem, ...]]:
    """Return the table in ``text``, and what in it has no effect. Raises ``DocumentError``."""
    # Lone surrogates are the decoder's matter; here only the size counts.
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        raise DocumentError(document, "$", f"has {size} bytes, more than {MAX_BYTES}")
    table = decode(text, _Table, document)
    problems = FoundProblems()
    levels: dict[str, ChipLevel] = {}
    for name, level, codes in (  # most serious first
        ("SeparateNPUCodes", ChipLevel.SEPARATE_NPU, table.codes.separate),
        ("PreSeparateNPUCodes", ChipLevel.PRE_SEPARATE_NPU, table.codes.pre_separate),
        ("SubHealthFaultCodes", ChipLevel.SUB_HEALTH_FAULT, table.codes.sub_health),
        ("NotHandleFaultCodes", ChipLevel.NOT_HANDLE_FAULT, table.codes.not_handle),
    ):
        for index, code in enumerate(codes or ()):
            where = f"$.publicFaultCode.{name}[{index}]"
            if len(code.encode()) != CODE_BYTES:
                message = f"{quoted(code)!r} has no effect: a code has {CODE_BYTES} bytes"
                problems.add(Problem(where, message))
            elif levels.setdefault(code, level) is not level:
                problems.add(Problem(where, f"{code!r} is {levels[code]} by another list"))
    resources = frozenset(name for name in table.resources or () if name)
    # Upstream empties its tables over such a file (defect B21).
    if not levels:
        raise DocumentError(document, "$.publicFaultCode", "has no code: nothing would be taken")
    if not resources:
        raise DocumentError(document, "$.publicFaultResource", "names no program that may report")
    problems.extend(dropped(text, _Table))
    return PublicFaultTable(levels, resources), problems.all()
