"""The table of brokers in ``docs/stores.md`` is the record of the last ``make test-brokers``."""

from __future__ import annotations

from tests.brokers import record
from tests.brokers.programs import HiveMq
from tests.parts.tree import ROOT


def test_documents_have_the_last_record() -> None:
    lines = (ROOT / "docs/stores.md").read_text(encoding="utf-8").splitlines()
    expected = record.table(record.read())
    begin = lines.index(expected[0])
    assert lines[begin : begin + len(expected)] == expected
    assert lines[begin + len(expected)] == ""


def test_record_is_of_the_pinned_version() -> None:
    assert {one.version for one in record.read() if one.broker == "HiveMQ CE"} == {HiveMq.version()}
