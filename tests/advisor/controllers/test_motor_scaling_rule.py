"""The scaling rule of MindIE Motor: X1 to X14 as written in ``docs/spec/consumers.md#3.7``."""

from __future__ import annotations

import pytest

from advisor.controllers.motor_scaling_rule import read_rule, target_index
from advisor.options import Profile
from contract.errors import DocumentError
from tests.advisor.controllers.motor_services import Entries, S, advised, rule_text, service

T: Entries = [{"g0": 3, "g1": 1}, {"g0": 2, "g1": 1}, {"g0": 1, "g1": 1}]
U: Entries = [{"g0": 1, "g1": 1}]
X12: Entries = [{"p": 4, "d": 2}, {"p": 2, "d": 1}, {"p": 1, "d": 1}]
X13: Entries = [{"p": 2, "d": 1}, {"p": 1}]


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize(
    ("entries", "running", "index", "verdicts"),
    [
        pytest.param(S, {}, 1, {"g0": "ALLOW", "g1": "ALLOW"}, id="X1"),
        pytest.param(S, {"g0": 1}, 1, {"g0": "HOLD", "g1": "ALLOW"}, id="X2"),
        pytest.param(S, {"g1": 1}, 1, {"g0": "ALLOW", "g1": "HOLD"}, id="X3"),
        pytest.param(S, {"g0": 1, "g1": 1}, 0, {"g0": "ALLOW", "g1": "HOLD"}, id="X4"),
        pytest.param(S, {"g0": 2, "g1": 1}, None, {"g0": "HOLD", "g1": "HOLD"}, id="X5"),
        pytest.param(S, {"g0": 2}, 1, {"g0": "HOLD", "g1": "ALLOW"}, id="X6"),
        pytest.param(S, {"g0": 1, "g1": 2}, 0, {"g0": "ALLOW", "g1": "HOLD"}, id="X7"),
        pytest.param(T, {"g0": 1, "g1": 1}, 1, {"g0": "ALLOW", "g1": "HOLD"}, id="X8"),
        pytest.param(T, {"g0": 2, "g1": 1}, 0, {"g0": "ALLOW", "g1": "HOLD"}, id="X9"),
        pytest.param(U, {"g0": 2, "g1": 1}, None, {"g0": "HOLD", "g1": "HOLD"}, id="X10"),
        pytest.param(U, {"g1": 1}, 0, {"g0": "ALLOW", "g1": "HOLD"}, id="X11"),
        pytest.param(X12, {"p": 4}, 2, {"p": "HOLD", "d": "ALLOW"}, id="X12"),
    ],
)
def test_missing_pods_are_created_by_the_smallest_entry_not_reached(
    entries: Entries,
    running: dict[str, int],
    index: int | None,
    verdicts: dict[str, str],
    profile: Profile,
) -> None:
    found = advised(service(entries, running, tuple(verdicts)), profile)
    assert {name: found[f"{name}-new0"].verdict for name in verdicts} == verdicts
    assert {one.dest_index for one in found.values()} == {index}
    for name, verdict in verdicts.items():
        one = found[f"{name}-new0"]
        reason = "" if verdict == "ALLOW" else "AT_TARGET" if index is None else "GROUP_SATISFIED"
        assert one.reason == reason
        assert one.current == {group: running.get(group, 0) for group in entries[0]}


def test_x13_a_group_that_the_target_lacks() -> None:
    snapshot = service(X13, {}, ("p", "d"))
    upstream = advised(snapshot, Profile.UPSTREAM)
    assert (upstream["p-new0"].verdict, upstream["p-new0"].dest_index) == ("ALLOW", 1)
    assert (upstream["d-new0"].verdict, upstream["d-new0"].reason) == (
        "CRASH",
        "GROUP_NOT_IN_TARGET",
    )
    corrected = advised(snapshot, Profile.CORRECTED)["d-new0"]
    assert (corrected.verdict, corrected.reason) == ("HOLD", "GROUP_NOT_IN_TARGET")


@pytest.mark.parametrize("profile", Profile)
def test_x14_a_rule_that_grows(profile: Profile) -> None:
    one = advised(service([{"a": 1}, {"a": 2}], {}, ("a",)), profile)["a-new0"]
    assert (one.verdict, one.reason) == ("HOLD", "RULE_INVALID")
    assert "group_num of 'a' grows" in one.why


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("{", "is not JSON"),
        ("[]", "must be an object, is an array"),
        ('{"elastic_scaling_list": [{"group_list": [{"group_num": 2}]}]}', "must be a text"),
        (rule_text([{"a": 1}]).replace('"1"', '"1_0"'), "must be a whole number"),
        (rule_text([{"a": 1}, {"b": 1}]), "is not in the entry before"),
        (
            rule_text([{"a": 1}, {"a": 1}]).replace('"2"', '"1"', 1),
            "server_num_per_group of 'a' gr",
        ),
    ],
)
def test_a_wrong_rule_is_refused_with_its_place(text: str, where: str) -> None:
    with pytest.raises(DocumentError, match="r: ") as raised:
        read_rule(text, "r")
    assert where in str(raised.value)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (rule_text([{"a": 1}], version="2.0"), "must be '1.0'"),
        (rule_text([{"a": 0}]), "must be 1 or more"),
        (rule_text([{"a": -1}]), "must be 1 or more"),
        (rule_text([{"a": 2}, {"a": 1}])[::-1].replace('"2"', '"1"', 1)[::-1], "differs"),
        (
            '{"version": "1.0", "elastic_scaling_list": [{"group_list": ['
            '{"group_name": "a", "group_num": "1", "server_num_per_group": "1"},'
            '{"group_name": "a", "group_num": "2", "server_num_per_group": "1"}]}]}',
            "names 'a' twice",
        ),
    ],
)
def test_a_rule_that_only_the_corrected_profile_refuses(text: str, what: str) -> None:
    read_rule(text, "r")
    with pytest.raises(DocumentError) as raised:
        read_rule(text, "r", strict=True)
    assert what in str(raised.value)


def test_a_rule_without_entries_is_reached() -> None:
    assert target_index(read_rule("null", "r"), {}) is None
