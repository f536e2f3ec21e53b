"""Which text of each document is in force (device-plugin#3.1)."""

from __future__ import annotations

import hashlib
import json
import re

import pytest

from contract.codes.catalogue import shipped
from contract.errors import ConfigurationError
from contract.operator_rules.fault_configuration import (
    CHIP_CONFIG_MAP,
    DOCUMENTS,
    NODE_CONFIG_MAP,
    ConfigurationPlace,
    FaultTexts,
    InForce,
    Judged,
    catalogue_of,
    judge,
    judge_texts,
)
from tests.fault_texts import recorded_texts, shipped_texts

CODES, RULES, SWITCHES, NODE_CODES = DOCUMENTS
KNOWN = "80E21007"
NEW = json.dumps({"SeparateNPUCodes": [KNOWN, "81078603"], "NotHandleFaultCodes": ["1"]})
OTHER = json.dumps({"SubHealthFaultCodes": [KNOWN], "NotHandleFaultCodes": ["1"]})
NODE = '{"FaultTypeCode":{"SeparateFaultCodes":["7F0000A1"]}}'
BAD = '{"SeparateNPUCodes": [80E21007]}'


def level(judged: Judged) -> str:
    return judged.catalogue.level_of(KNOWN, None)


def state(judged: Judged, key: str = CODES) -> tuple[str, bool]:
    return judged.in_force.place_of(key).value, key in judged.kept


def test_config_map_then_file_then_shipped() -> None:
    judged = judge_texts({CODES: NEW}, {CODES: OTHER, RULES: "{}"}, InForce())
    assert (level(judged), state(judged)) == ("SeparateNPU", ("configmap", False))
    assert (dict(judged.catalogue.durations), state(judged, RULES)) == ({}, ("file", False))
    assert judged.catalogue.switch_levels == shipped().switch_levels
    assert state(judged, SWITCHES) == ("shipped", False)
    judged = judge_texts({}, {CODES: OTHER}, judged.in_force)
    assert (level(judged), state(judged)) == ("SubHealthFault", ("file", False))
    assert judged.catalogue.durations == shipped().durations
    judged = judge_texts({}, {}, judged.in_force)
    assert (level(judged), state(judged)) == ("NotHandleFault", ("shipped", False))
    assert judged.in_force == InForce()


@pytest.mark.parametrize("bad", [BAD, "", "{", "[]"])
def test_document_that_cannot_be_decoded_changes_nothing(bad: str) -> None:
    good = judge_texts({CODES: NEW, RULES: "{}"}, {CODES: OTHER}, InForce())
    judged = judge_texts({CODES: bad, RULES: "{}"}, {CODES: OTHER}, good.in_force)
    assert judged.in_force == good.in_force
    assert (level(judged), state(judged)) == ("SeparateNPU", ("configmap", True))
    (problem,) = judged.problems
    assert (problem.document, problem.place) == (CODES, ConfigurationPlace.CONFIG_MAP)
    assert "what was in force before stays" in problem.problem.what
    again = judge_texts({CODES: bad, RULES: "{}"}, {}, judged.in_force)
    assert again.in_force == good.in_force
    gone = judge_texts({RULES: "{}"}, {CODES: OTHER}, again.in_force)
    assert (level(gone), state(gone), gone.problems) == ("SubHealthFault", ("file", False), ())


def test_shipped_tables_hold_while_no_document_can_be_decoded() -> None:
    judged = judge_texts({CODES: BAD, RULES: "x", SWITCHES: "[]", NODE_CODES: "{}"}, {}, InForce())
    assert judged.in_force == InForce()
    assert judged.catalogue == shipped()
    assert judged.kept == set(DOCUMENTS)
    assert [problem.document for problem in judged.problems] == list(DOCUMENTS)


def test_a_file_that_cannot_be_decoded_or_read() -> None:
    good = judge_texts({}, {CODES: NEW}, InForce())
    judged = judge_texts({}, {CODES: BAD}, good.in_force)
    assert (level(judged), state(judged)) == ("SeparateNPU", ("file", True))
    judged = judge({CHIP_CONFIG_MAP: {}}, {}, good.in_force, {CODES: "Permission denied"})
    assert (level(judged), state(judged)) == ("SeparateNPU", ("file", True))
    assert "Permission denied" in str(judged.problems[0])
    there = {CHIP_CONFIG_MAP: {CODES: OTHER}}
    judged = judge(there, {}, good.in_force, {CODES: "Permission denied"})
    assert (level(judged), judged.problems) == ("SubHealthFault", ())


def test_while_the_content_of_the_config_map_is_unknown() -> None:
    before = judge_texts({CODES: NEW}, {RULES: "{}"}, InForce()).in_force
    judged = judge_texts(None, {CODES: OTHER, SWITCHES: '{"x":1}'}, before)
    assert (level(judged), state(judged)) == ("SeparateNPU", ("configmap", True))
    assert state(judged, RULES) == ("shipped", False), "the file is known to be gone"
    assert state(judged, SWITCHES) == ("file", False)
    assert judge_texts(None, {}, InForce()).catalogue == shipped()


@pytest.mark.parametrize("text", ["30", "3600", "+300"])
def test_poll_intervals_that_are_accepted(text: str) -> None:
    assert judge_texts({"PollInterval": text}, {}, InForce()).problems == ()


@pytest.mark.parametrize("text", ["29", "3601", "", "30.0", "٣٠", "9" * 5000])
def test_poll_intervals_that_upstream_would_not_take(text: str) -> None:
    judged = judge_texts({"PollInterval": text}, {}, InForce())
    assert judged.catalogue == shipped()
    assert [problem.document for problem in judged.problems] == ["PollInterval"]


def test_unknown_keys() -> None:
    judged = judge_texts({"faultcode.json": NEW}, {}, InForce())
    assert judged.in_force == InForce()
    assert [problem.document for problem in judged.problems] == ["faultcode.json"]


def test_the_config_map_of_the_server() -> None:
    """Of two ConfigMaps each has its own documents, and may be there or not."""
    judged = judge({NODE_CONFIG_MAP: {NODE_CODES: NODE}}, {CODES: NEW}, InForce())
    assert judged.catalogue.node_levels == {"7F0000A1": "SeparateFault"}
    assert (level(judged), judged.problems, judged.kept) == ("SeparateNPU", (), frozenset())
    assert state(judged, NODE_CODES) == ("configmap", False)
    unknown = judge({CHIP_CONFIG_MAP: None}, {}, judged.in_force)
    assert state(unknown, NODE_CODES) == ("configmap", True)
    assert (unknown.catalogue.node_levels, state(unknown)) == (
        judged.catalogue.node_levels,
        ("shipped", False),
    )
    gone = judge({NODE_CONFIG_MAP: None}, {NODE_CODES: '{"FaultTypeCode":{}}'}, judged.in_force)
    assert (dict(gone.catalogue.node_levels), state(gone, NODE_CODES)) == ({}, ("file", False))
    gone = judge({NODE_CONFIG_MAP: None}, {}, judged.in_force)
    assert gone.catalogue == shipped()


def test_a_config_map_of_the_server_without_its_document() -> None:
    """It is as wrong as one that cannot be decoded; that of the chips may lack some of its own."""
    before = judge_texts({NODE_CODES: NODE}, {}, InForce()).in_force
    other = {"other.json": NODE}
    judged = judge({NODE_CONFIG_MAP: other}, {NODE_CODES: '{"FaultTypeCode":{}}'}, before)
    assert judged.in_force == before
    assert judged.kept == {NODE_CODES}
    assert [(one.document, one.problem.where) for one in judged.problems] == [
        (NODE_CODES, "(key)"),
        ("other.json", "$"),
    ]
    assert {one.config_map for one in judged.problems} == {NODE_CONFIG_MAP}
    assert judge({NODE_CONFIG_MAP: other}, {}, InForce()).catalogue == shipped()


def test_documents_in_the_wrong_config_map_have_no_effect() -> None:
    given = {CHIP_CONFIG_MAP: {NODE_CODES: NODE}, NODE_CONFIG_MAP: {CODES: NEW, NODE_CODES: NODE}}
    judged = judge(given, {}, InForce())
    assert level(judged) == "NotHandleFault"
    assert {(one.document, one.config_map) for one in judged.problems} == {
        (NODE_CODES, CHIP_CONFIG_MAP),
        (CODES, NODE_CONFIG_MAP),
    }
    assert judge({CHIP_CONFIG_MAP: given[CHIP_CONFIG_MAP]}, {}, InForce()).in_force == InForce()


def test_everything_that_is_wrong_with_the_codes_of_the_server() -> None:
    before = judge_texts({NODE_CODES: NODE}, {}, InForce()).in_force
    bad = '{"FaultTypeCode":{"SeparateFaultCodes":["1","2"],"NotHandleFaultCodes":{}}}'
    judged = judge_texts({NODE_CODES: bad}, {}, before)
    assert judged.catalogue.node_levels == {"7F0000A1": "SeparateFault"}
    assert len(judged.problems) == 3
    assert all(one.problem.what.endswith("was in force before stays") for one in judged.problems)


def test_texts_that_are_no_unicode_are_kept_as_go_would_read_them() -> None:
    judged = judge_texts({CODES: '{"SeparateNPUCodes":["80E21007"],"\ud800":1}'}, {}, InForce())
    assert judged.in_force.texts.digest
    assert catalogue_of(judged.in_force.texts) == judged.catalogue


def test_tables_of_texts_that_cannot_be_decoded() -> None:
    with pytest.raises(ConfigurationError, match=r"faultCode\.json"):
        catalogue_of(FaultTexts(fault_code="{"))


def test_the_digest_names_a_configuration() -> None:
    digests = {
        FaultTexts().digest,
        FaultTexts(fault_code=NEW).digest,
        FaultTexts(customization=NEW).digest,
        FaultTexts(fault_code=OTHER).digest,
    }
    assert len(digests) == 4
    assert FaultTexts(fault_code=NEW).digest == FaultTexts(fault_code=str(NEW)).digest


def test_digest_without_a_node_document_is_that_of_older_releases() -> None:
    """Those knew no document about the server's parts."""
    old = FaultTexts(fault_code="{}", customization="{}", switch_fault_code="{}")
    assert old.digest == "8f52214cb40873e24f269ef8a0ccf870e8943e363da1927e0139ae35bb986712"
    assert FaultTexts().digest == hashlib.sha256(b"{}").hexdigest()
    assert FaultTexts(node=NODE).digest != FaultTexts().digest


def test_the_texts_of_the_recordings() -> None:
    """Replaced, malformed, repaired, deleted: upstream goes back to the shipped table in between,
    which this does only when the key is gone."""
    second, first, bad = recorded_texts(CODES)
    in_force, levels = InForce(), []
    for data in ({CODES: first}, {CODES: second}, {CODES: bad}, {CODES: first}, {CODES: bad}, {}):
        judged = judge_texts(data, {}, in_force)
        in_force = judged.in_force
        levels.append(tuple(judged.catalogue.level_of(c, None) for c in (KNOWN, "80E3A201")))
    given, changed = ("NotHandleFault", "SeparateNPU"), ("SeparateNPU", "NotHandleFault")
    assert levels == [given, changed, changed, given, given, given]


def test_the_shipped_texts_are_in_force_like_the_shipped_tables() -> None:
    judged = judge_texts(shipped_texts(), {}, InForce())
    assert judged.catalogue == shipped()
    assert judged.problems == ()
    assert shipped().autofill_release_ms == 172_800_000


@pytest.mark.parametrize(
    ("key", "text", "count"),
    [
        (CODES, json.dumps({"SeparateNPUCodes": ["x"] * 2999}), 3000),
        (RULES, json.dumps({"FaultFrequency": [{}] * 3000, "FaultDuration": [{}] * 3000}), 21_000),
        (SWITCHES, json.dumps({"SeparateFaultCodes": ["[1,2,3,4]"] + ["x"] * 2999}), 3000),
        (CODES, json.dumps({"NotHandleFaultCodes": ["1"]} | {f"x{n}": 0 for n in range(3000)}), 0),
    ],
)
def test_a_document_of_nonsense_costs_little_memory(key: str, text: str, count: int) -> None:
    """A mebibyte of empty rules has almost two million problems."""
    problems = judge_texts({key: text}, {}, InForce()).problems
    assert len(problems) == 1001
    first = problems[0].problem
    assert first.where == "$"
    assert re.fullmatch(r"has [0-9]+ problems, of which the first 1000 are listed", first.what)
    assert count == 0 or f"has {count} problems" in first.what


def test_a_config_map_of_nonsense() -> None:
    assert len(judge_texts({f"x{n}": "" for n in range(3000)}, {}, InForce()).problems) == 1000
