"""The codes of the host checks."""

from __future__ import annotations

from contract.codes.catalogue import shipped, shipped_levels
from contract.codes.chip_codes import is_code
from contract.codes.host_codes import HOST_CODES
from contract.codes.levels import NodeLevel


def test_they_are_codes_of_our_own() -> None:
    levels = shipped_levels()
    taken = {
        code
        for table in (levels.chip, levels.node, levels.public)
        for codes in table.values()
        for code in codes
    }
    assert all(map(is_code, HOST_CODES))
    assert not taken & HOST_CODES.keys()
    assert [int(code, 16) & 0xFF for code in HOST_CODES] == list(range(1, len(HOST_CODES) + 1))


def test_they_are_not_handled_unless_a_table_names_them() -> None:
    for code in HOST_CODES:
        assert shipped().judge_node(code).level == NodeLevel.NOT_HANDLE_FAULT
    assert shipped().judge_node("F1000001").level == ""
