"""The tables of relation faults that upstream ships."""

from __future__ import annotations

from aggregator.jobs.relations import SHIPPED, RelationRow


def test_shipped_tables_are_those_of_upstream() -> None:
    assert SHIPPED.rows[0] == RelationRow("8C1F8609", ("81078603",), "SubHealth")
    assert set(SHIPPED.windows_ms.values()) == {300_000}
