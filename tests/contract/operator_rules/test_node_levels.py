"""``NodeDConfiguration.json``: what is accepted, and everything for which one is refused
(``docs/spec/noded.md#3.2``, E11, E13)."""

from __future__ import annotations

import json

import pytest

from contract.errors import ConfigurationError
from contract.operator_rules.node_levels import NODE_CONFIGURATION_KEY, read_node_levels
from tests.fault_texts import recorded_texts

GOOD = "2C000031"


def codes(**lists: object) -> str:
    return json.dumps({"FaultTypeCode": {f"{name}FaultCodes": one for name, one in lists.items()}})


def refused(text: str) -> list[str]:
    """Return the places of all problems in the text."""
    with pytest.raises(ConfigurationError, match=r"NodeDConfiguration\.json") as caught:
        read_node_levels(text)
    return [problem.where.removeprefix("$.FaultTypeCode") for problem in caught.value.problems]


def test_codes_in_any_case_and_twice() -> None:
    """noded#E11."""
    found = read_node_levels(codes(PreSeparate=["abcdef12", "ABCDEF12"], NotHandle=["0000zzzz"]))
    assert found.levels == {"ABCDEF12": "PreSeparateFault", "0000ZZZZ": "NotHandleFault"}
    (problem,) = found.problems
    assert problem.where == "$.FaultTypeCode.NotHandleFaultCodes[0]"
    assert "never comes from a BMC" in problem.what, "D-23"


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ('{"faulttypecode":{"separatefaultcodes":["2C000031"]}}', {GOOD: "SeparateFault"}),
        ('{"FaultTypeCode":{}}', {}),
        ('{"FaultTypeCode":{"SeparateFaultCodes":null}}', {}),
        ('{"Fault\\u0054ypeCode":{"\\u017feparateFaultCode\\u017f":["2c000031"]}}', {GOOD: "S"}),
        (codes(Separate=["F0000001"]), {"F0000001": "SeparateFault"}),
    ],
)
def test_valid_tables_are_accepted(text: str, levels: dict[str, str]) -> None:
    found = read_node_levels(text)
    assert found.levels.keys() == levels.keys()
    assert all(found.levels[code].startswith(level) for code, level in levels.items())
    assert found.problems == ()


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", ["$"]),
        ("[]", ["$"]),
        ("null", [""]),
        ("{}", [""]),
        ('{"FaultTypeCode":null}', [""]),
        ('{"FaultTypeCode":{},"faultTypeCode":null}', ["", ""]),
        ('{"FaultTypeCode":["2C000031"]}', [""]),
        (codes(Separate="2C000031"), [".SeparateFaultCodes"]),
        (codes(Separate={"2C000031": 1}), [".SeparateFaultCodes"]),
        (codes(Separate=["2C00003"]), [".SeparateFaultCodes[0]"]),
        (codes(Separate=["2C0000311"]), [".SeparateFaultCodes[0]"]),
        (codes(Separate=["2C00-031"]), [".SeparateFaultCodes[0]"]),
        (codes(Separate=["2C00031\n"]), [".SeparateFaultCodes[0]"]),
        (codes(Separate=["2C00031Ü"]), [".SeparateFaultCodes[0]"]),
        (codes(Separate=["2C0003ß"]), [".SeparateFaultCodes[0]"]),
        (codes(Separate=[GOOD, None]), [".SeparateFaultCodes[1]"]),
        (codes(Separate=[12345678]), [".SeparateFaultCodes[0]"]),
        ('{"FaultTypeCode":{"SeparateFaultCodes":[1234e567]}}', [".SeparateFaultCodes[0]"]),
        (codes(Separate=[GOOD], PreSeparate=[GOOD.lower()]), [".PreSeparateFaultCodes[0]"]),
        ('{"FaultTypeCode":{"a":' + "[" * 100_000, ["$"]),
    ],
)
def test_invalid_tables_are_refused_with_all_places(text: str, where: list[str]) -> None:
    """noded#E13, and what its recordings do not have."""
    assert refused(text) == where


def test_everything_that_is_wrong_is_reported_at_once() -> None:
    document = {
        "NotHandleFaultCodes": [GOOD, "x", 7],
        "PreSeparateFaultCodes": "06000025",
        "SeparateFaultCodes": [GOOD.lower(), "1234567"],
        "SeperateFaultCodes": ["06000025"],
    }
    assert sorted(refused(json.dumps({"FaultTypeCode": document}))) == [
        ".NotHandleFaultCodes[1]",
        ".NotHandleFaultCodes[2]",
        ".PreSeparateFaultCodes",
        ".SeparateFaultCodes[0]",
        ".SeparateFaultCodes[1]",
        ".SeperateFaultCodes",
    ]


def test_a_code_on_two_levels_names_the_place_of_the_other_one() -> None:
    """D-07."""
    with pytest.raises(ConfigurationError, match=r"NotHandleFaultCodes\[1\]") as caught:
        read_node_levels(codes(NotHandle=["0100000D", GOOD], Separate=[GOOD]))
    assert [one.where for one in caught.value.problems] == ["$.FaultTypeCode.SeparateFaultCodes[0]"]


def test_of_what_is_given_more_than_once_the_last_counts_and_it_is_reported() -> None:
    found = read_node_levels(
        '{"FaultTypeCode":{"SeparateFaultCodes":["06000025"],"separateFaultCodes":["2C000031"]}}'
    )
    assert found.levels == {GOOD: "SeparateFault"}
    assert [one.where for one in found.problems] == ["$.FaultTypeCode.SeparateFaultCodes"]


def test_unknown_members_are_reported() -> None:
    found = read_node_levels('{"FaultTypeCode":{"SeperateFaultCodes":["2C000031"]},"x":1}')
    assert found.levels == {}
    assert [one.where for one in found.problems] == ["$.FaultTypeCode.SeperateFaultCodes", "$.x"]
    assert "did you mean SeparateFaultCodes?" in found.problems[0].what


def test_the_recorded_documents() -> None:
    """The real program refuses ten of them, two only after it logged that they are good."""
    good = []
    for text in recorded_texts(NODE_CONFIGURATION_KEY):
        try:
            good.append(read_node_levels(text))
        except ConfigurationError:
            continue
    assert len(recorded_texts(NODE_CONFIGURATION_KEY)) - len(good) == 10
    assert all(found.problems == () for found in good)


@pytest.mark.slow
def test_a_mebibyte_of_nonsense_costs_little_memory() -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_node_levels(codes(Separate=["x"] * 100_000))
    assert len(caught.value.problems) == 1001
    assert "has 100000 problems" in caught.value.problems[0].what
