"""The two files of relation faults, and what is wrong with them."""

from __future__ import annotations

import json

import pytest

from aggregator.jobs.relation_tables import SHIPPED, Row, read_rows, read_windows
from contract.errors import ConfigurationError


def test_what_is_shipped_is_read_as_it_is() -> None:
    rows = [
        {
            "TriggerFault": row.trigger,
            "RelationFaults": [*row.relations],
            "FaultStrategy": row.strategy,
        }
        for row in SHIPPED.rows
    ]
    windows = [
        {"FaultCode": code, "FaultType": "faultDevice", "TimeOutInterval": ms // 1000}
        for code, ms in SHIPPED.windows_ms.items()
    ]
    assert read_rows(json.dumps(rows), "rows") == SHIPPED.rows
    assert read_windows(json.dumps(windows), "windows") == SHIPPED.windows_ms
    assert SHIPPED.rows[0] == Row("8C1F8609", ("81078603",), "SubHealth")
    assert set(SHIPPED.windows_ms.values()) == {300_000}
    assert read_rows("null", "rows") == read_rows("[]", "rows") == ()


def test_everything_that_is_wrong_with_rows_is_told() -> None:
    rows = [
        {"TriggerFault": "", "RelationFaults": [], "FaultStrategy": "Restart"},
        {
            "TriggerFault": "1",
            "RelationFaults": ["2", ""],
            "FaultStrategy": "Separate",
            "Faults": 1,
        },
    ]
    with pytest.raises(ConfigurationError) as caught:
        read_rows(json.dumps(rows), "rows.json")
    assert [problem.where for problem in caught.value.problems] == [
        "$[1].Faults",
        "$[0].TriggerFault",
        "$[0].RelationFaults",
        "$[0].FaultStrategy",
        "$[1].RelationFaults",
    ]


def test_everything_that_is_wrong_with_windows_is_told() -> None:
    windows = [
        {"FaultCode": "", "TimeOutInterval": -1},
        {"FaultCode": "1", "TimeOutInterval": 86401},
    ]
    with pytest.raises(ConfigurationError) as caught:
        read_windows(json.dumps(windows), "windows.json")
    assert [problem.where for problem in caught.value.problems] == [
        "$[0].FaultCode",
        "$[0].TimeOutInterval",
        "$[1].TimeOutInterval",
    ]


@pytest.mark.parametrize("text", ["", "{}", "[1]", "[", '[{"TimeOutInterval": 1.5}]', "[]}, {"])
def test_what_is_no_table(text: str) -> None:
    with pytest.raises(ConfigurationError):
        read_windows(text, "windows.json")


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"TriggerFault": 1}]', '[], "rows": []'])
def test_what_are_no_rows(text: str) -> None:
    with pytest.raises(ConfigurationError):
        read_rows(text, "rows.json")
