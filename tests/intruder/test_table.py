"""The intruder's table has no empty cell, and ``docs/security.md`` shows it."""

from __future__ import annotations

import re

import pytest

from tests.intruder.document import GAPS, HEAD, ROWS, SECURITY, section
from tests.intruder.table import Actor, Gap, Protection, Thing, Verb, cells


def test_the_document_shows_the_table() -> None:
    _, head, text = SECURITY.read_text(encoding="utf-8").partition(HEAD)
    assert head + text == section(), "run: python -m tests.intruder.document"


def test_an_empty_cell_is_found() -> None:
    missing = [gap for gap in GAPS if Thing.WILLS not in gap.things]
    with pytest.raises(ValueError, match=r"neither rows nor a reason: .* · wills · read"):
        cells(ROWS, missing)


def test_a_cell_has_rows_or_one_reason() -> None:
    again = Gap(Actor.AGENT, (Thing.DOCUMENTS,), "any", (Verb.READ,))
    with pytest.raises(ValueError, match=r"agent-documents-read-.*: a row and a reason: any"):
        cells(ROWS, (*GAPS, again))
    with pytest.raises(ValueError, match="the token of one agent · topics · read: two reasons"):
        cells(ROWS, (*GAPS, Gap(Actor.AGENT, (Thing.TOPICS,), "any")))


def test_each_protection_refuses_something_and_is_named_among_the_attacks() -> None:
    attacks, _, _ = SECURITY.read_text(encoding="utf-8").partition(HEAD)
    for protection in Protection:
        assert any(protection in row.protections for row in ROWS), protection
        for name in re.findall("`[^`]+`", protection.value):
            assert name in attacks, protection
