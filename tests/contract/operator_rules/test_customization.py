"""``faultCustomization.json`` as the Device Plugin reads it (device-plugin#3.3 to 3.5, EX-29)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from contract.codes.catalogue import shipped
from contract.codes.levels import ChipLevel
from contract.codes.policies import DurationPolicy, FrequencyPolicy
from contract.errors import DocumentError
from contract.operator_rules.customization import Customization, read_customization
from contract.operator_rules.fault_configuration import (
    FaultTexts,
    InForce,
    catalogue_of,
    judge_texts,
)
from tests.compatibility import check, different

KEY = "faultCustomization.json"
CODE = "80E18005"
FREQUENCY: dict[str, Any] = {
    "EventId": [CODE],
    "TimeWindow": 60,
    "Times": 3,
    "FaultHandling": "SeparateNPU",
    "ReleaseTimeWindow": 60,
}
DURATION: dict[str, Any] = {
    "EventId": [CODE],
    "FaultTimeout": 20,
    "RecoverTimeout": 60,
    "FaultHandling": "PreSeparateNPU",
}
OTHER = "81078603"
SPELLINGS = {int(code, 16): code.lower() for code in (CODE, OTHER, "020001002")}


def read(text: object) -> Customization:
    return read_customization(text if isinstance(text, str) else json.dumps(text), SPELLINGS)


def wheres(read: Customization) -> list[str]:
    return [problem.where for problem in read.problems]


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("TimeWindow", 60),
        ("TimeWindow", 864_000),
        ("Times", 1),
        ("Times", 100),
        ("ReleaseTimeWindow", 60),
        ("ReleaseTimeWindow", 2**32 - 1),
        *(("FaultHandling", level) for level in ChipLevel if level != "NormalNPU"),
    ],
)
def test_frequency_rules_that_are_accepted(member: str, value: object) -> None:
    found = read({"FaultFrequency": [FREQUENCY | {member: value}]})
    assert (list(found.frequencies), found.problems) == ([CODE], ())


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("TimeWindow", 59),
        ("TimeWindow", 864_001),
        ("TimeWindow", None),
        ("Times", 0),
        ("Times", 101),
        ("ReleaseTimeWindow", 59),
        ("ReleaseTimeWindow", -1),
        ("ReleaseTimeWindow", 2**32 + 1),
        ("ReleaseTimeWindow", 2**32),
        ("ReleaseTimeWindow", 0),
        ("ReleaseTimeWindow", None),
        ("FaultHandling", "separatesNPU"),
        ("FaultHandling", "separatenpu"),
        ("FaultHandling", "NormalNPU"),
        ("FaultHandling", None),
        ("EventId", []),
        ("EventId", None),
    ],
)
def test_a_frequency_rule_out_of_its_range_is_skipped_alone(member: str, value: object) -> None:
    other = FREQUENCY | {"EventId": [OTHER]}
    found = read({"FaultFrequency": [FREQUENCY | {member: value}, other]})
    assert list(found.frequencies) == [OTHER]
    assert wheres(found) == [f"$.FaultFrequency[0].{member}"]


@pytest.mark.parametrize("release", [0, 2**32, None])
def test_only_a_manual_isolation_may_last_for_ever(release: int | None) -> None:
    entry = FREQUENCY | {"FaultHandling": "ManuallySeparateNPU", "ReleaseTimeWindow": release}
    found = read({"FaultFrequency": [entry]})
    policy = FrequencyPolicy(60, 3, ChipLevel.MANUALLY_SEPARATE_NPU, None)
    assert (found.frequencies, found.problems) == ({CODE: policy}, ())


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("FaultTimeout", 0),
        ("FaultTimeout", None),
        ("FaultTimeout", 600),
        ("RecoverTimeout", 0),
        ("RecoverTimeout", 86_400),
        ("FaultHandling", "NotHandleFault"),
    ],
)
def test_duration_rules_that_are_accepted(member: str, value: object) -> None:
    found = read({"FaultDuration": [DURATION | {member: value}]})
    assert (list(found.durations), found.problems) == ([CODE], ())


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("FaultTimeout", -1),
        ("FaultTimeout", 601),
        ("RecoverTimeout", -1),
        ("RecoverTimeout", 86_401),
        ("FaultHandling", "ManuallySeparateNPU"),
        ("FaultHandling", "NormalNPU"),
        ("FaultHandling", ""),
        ("EventId", []),
    ],
)
def test_a_duration_rule_out_of_its_range_is_skipped_alone(member: str, value: object) -> None:
    other = DURATION | {"EventId": [OTHER]}
    found = read({"FaultDuration": [DURATION | {member: value}, other]})
    assert list(found.durations) == [OTHER]
    assert wheres(found) == [f"$.FaultDuration[0].{member}"]


def test_a_code_may_have_a_rule_of_each_kind_with_its_units() -> None:
    found = read({"FaultFrequency": [FREQUENCY], "FaultDuration": [DURATION]})
    assert found.problems == ()
    assert found.frequencies == {CODE: FrequencyPolicy(60, 3, ChipLevel.SEPARATE_NPU, 60_000)}
    assert found.durations == {CODE: DurationPolicy(20_000, 60_000, ChipLevel.PRE_SEPARATE_NPU)}


def test_the_first_valid_entry_owns_an_id() -> None:
    entries = [
        FREQUENCY | {"Times": 0},
        FREQUENCY | {"EventId": [CODE.lower()], "Times": 4},
        FREQUENCY | {"EventId": [CODE, OTHER], "Times": 5},
    ]
    found = read({"FaultFrequency": entries})
    assert {code: rule.times for code, rule in found.frequencies.items()} == {CODE: 4, OTHER: 5}
    assert wheres(found) == ["$.FaultFrequency[0].Times", "$.FaultFrequency[2].EventId[0]"]


@pytest.mark.parametrize(
    "text", ["0x80E18005", "080E18005", "20001002", "zz", "", "-80E18005", "fffffffffffff"]
)
def test_an_id_that_never_matches_is_reported(text: str) -> None:
    found = read({"FaultDuration": [DURATION | {"EventId": [text, OTHER]}]})
    assert list(found.durations) == [OTHER]
    assert wheres(found) == ["$.FaultDuration[0].EventId[0]"]


def test_the_first_spelling_of_an_unlisted_code_counts() -> None:
    """As upstream remembers it, but not for longer than the configuration (K46).

    Source: docs/spec/device-plugin.md#2.5.
    """
    first, second = FREQUENCY | {"EventId": ["080ABCDEF"]}, FREQUENCY | {"EventId": ["80ABCDEF"]}
    assert list(read({"FaultFrequency": [first]}).frequencies) == ["80ABCDEF"]
    both = read({"FaultFrequency": [first, second]})
    assert wheres(both) == ["$.FaultFrequency[1].EventId[0]"]
    assert wheres(read({"FaultFrequency": [second]})) == []
    texts = FaultTexts(
        fault_code='{"SeparateNPUCodes":["80ABCDEF"]}',
        customization=json.dumps({"FaultFrequency": [first]}),
    )
    assert catalogue_of(texts).frequencies == {}


@pytest.mark.parametrize(
    ("member", "wrong", "right"),
    [
        ("WaitProcessReadCMTime", (4, 91, -1), (0, 5, 90, None)),
        ("WaitDeviceResetTime", (59, 181), (0, 60, 180)),
        ("WaitFaultSelfHealingTime", (31,), (0, 1, 30)),
    ],
)
def test_grace_tolerance_is_checked_and_has_no_effect(
    member: str, wrong: tuple[int, ...], right: tuple[int | None, ...]
) -> None:
    for value in wrong:
        assert wheres(read({"GraceTolerance": {member: value}})) == [f"$.GraceTolerance.{member}"]
    for fine in right:
        assert read({"GraceTolerance": {member: fine}}).problems == ()


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"FaultFrequency":{}}',
        '{"FaultFrequency":[{"TimeWindow":"60"}]}',
        '{"FaultFrequency":[{"ReleaseTimeWindow":9223372036854775808}]}',
        '{"FaultDuration":[{"FaultHandling":3}]}',
        '{"FaultDuration":[{"EventId":"80E18005"}]}',
        '{"GraceTolerance":{"WaitDeviceResetTime":1.5}}',
        '{"GraceTolerance":[]}',
    ],
)
def test_text_that_cannot_be_decoded_is_refused_whole(text: str) -> None:
    with pytest.raises(DocumentError):
        read(text)


def test_the_longest_release_ends_an_isolation_without_a_reason() -> None:
    def release(*seconds: int) -> int | None:
        entries = [
            FREQUENCY | {"EventId": [f"8000000{n}"], "ReleaseTimeWindow": window}
            for n, window in enumerate(seconds)
        ]
        entries.append(FREQUENCY | {"FaultHandling": "ManuallySeparateNPU", "ReleaseTimeWindow": 0})
        texts = FaultTexts(customization=json.dumps({"FaultFrequency": entries}))
        return catalogue_of(texts).autofill_release_ms

    assert (release(), release(60), release(60, 7200, 600)) == (None, 60_000, 7_200_000)


EX_29 = {
    "{": "shipped",
    '{"FaultFrequency":{}}': "shipped",
    '{"FaultFrequency":[{"EventId":["80E18005"],"TimeWindow":"60","Times":3}]}': "shipped",
    '{"faultfrequency":[{"eventid":["80E18005"],"TIMEWINDOW":60,"times":3,'
    '"FaultHandling":"ManuallySeparateNPU"}]}': [CODE],
    "null": [],
    "{}": [],
    '{"FaultFrequency":[{"EventId":["0x80E18005"],"TimeWindow":60,"Times":3,'
    '"FaultHandling":"ManuallySeparateNPU"}]}': [],
}


@pytest.mark.slow
def test_ex_29() -> None:
    found: dict[str, object] = {}
    for text in EX_29:
        frequencies = judge_texts({KEY: text}, {}, InForce()).catalogue.frequencies
        found[text] = "shipped" if frequencies == shipped().frequencies else list(frequencies)
    check("device-plugin/EX-29", different(EX_29, found))
