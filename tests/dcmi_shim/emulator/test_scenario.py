"""Scenario files: what is right, what is wrong, and how they are played."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import ConfigurationError, EmulatorError
from dcmi_shim.emulator.scenario import FailStep, RaiseStep, parse_scenario, play, read_scenario
from tests.dcmi_shim.emulator.driver import wait_until
from tests.parts.deadlines import patience
from tests.parts.examples import examples

if TYPE_CHECKING:
    from tests.dcmi_shim.emulator.conftest import Server, Watchers

DOCUMENT = Path(__file__).parents[3] / "docs" / "scenarios.md"
EVERYTHING = """
profile = "a3"
steps = [
    {at_ms = 0, do = "occur", chip = 15, code = "0x80e01801", severity = "minor"},
    {at_ms = 0, do = "once", chip = 1, code = "80C98006"},
    {at_ms = 120, do = "recover", chip = 15, code = "80E01801"},
    {at_ms = 120, do = "lose_next_event"},
    {at_ms = 120, do = "occur", chip = 2, code = "80E18402"},
    {at_ms = 130, do = "lose_everything_next"},
    {at_ms = 130, do = "occur", chip = 3, code = "80E18402"},
    {at_ms = 130, do = "drop", chip = 4},
    {at_ms = 130, do = "drop", chip = 5, hard = true},
    {at_ms = 130, do = "return", chip = 4},
    {at_ms = 140, do = "hang", function = "get_device_health", chip = 6},
    {at_ms = 150, do = "clear", function = "get_device_health"},
    {at_ms = 150, do = "slow", function = "dcmi_get_device_health", delay_ms = 5},
    {at_ms = 150, do = "fail", function = "get_device_health", return_code = -8005, chip = 6},
]
"""


def _problems(text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        parse_scenario(text, "scenario.toml")
    assert caught.value.source == "scenario.toml"
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.slow
def test_every_action_is_played_at_its_time(a3: Server, watchers: Watchers) -> None:
    watcher = watchers.start(a3)
    begin = time.monotonic()
    play(parse_scenario(EVERYTHING, "scenario.toml"), a3.emulator)
    assert 0.15 <= time.monotonic() - begin < patience(3)
    events = [watcher.event() for _ in range(3)]
    assert [(e["deviceid"], e["code"], e["assertion"], e["severity"]) for e in events] == [
        (15, "80E01801", 1, 1),
        (1, "80C98006", 2, 0),
        (15, "80E01801", 0, 1),
    ]
    assert events[2]["at_ns"] / 1e9 - begin >= 0.12
    wait_until(lambda: a3.driver.codes(1, 0) == ["80E18402"])
    assert a3.driver.codes(1, 1) == []
    assert [a3.driver.health(2, device) for device in (0, 1)] == [0, -8012]
    assert [a3.driver.health(3, device) for device in (0, 1)] == [-8005, 0]
    wait_until(lambda: a3.driver.codes(7, 1) == [])


def test_codes_and_functions_of_a_scenario_are_read_in_one_form() -> None:
    scenario = parse_scenario(EVERYTHING, "scenario.toml")
    first, last = scenario.steps[0], scenario.steps[-1]
    assert isinstance(first, RaiseStep)
    assert isinstance(last, FailStep)
    assert (first.code, last.function) == ("80E01801", "dcmi_get_device_health")


def test_reset_as_a_step(a2: Server) -> None:
    a2.emulator.drop(0)
    play(parse_scenario('steps = [{at_ms = 0, do = "reset"}]', "scenario.toml"), a2.emulator)
    assert a2.driver.health(0) == 0


def test_a_scenario_for_other_hardware_is_refused_before_its_first_step(a2: Server) -> None:
    events = a2.emulator.status()["events"]
    with pytest.raises(ConfigurationError, match="'a3', but the emulator runs 'a2'"):
        play(parse_scenario(EVERYTHING, "scenario.toml"), a2.emulator)
    assert a2.emulator.status()["events"] == events
    assert a2.driver.health(5) == 0


def test_a_step_that_cannot_be_done_ends_the_play(a2: Server) -> None:
    text = 'steps = [{at_ms = 0, do = "recover", chip = 3, code = "80E01801"}]'
    with pytest.raises(EmulatorError, match="chip 3 has no fault 80E01801"):
        play(parse_scenario(text, "scenario.toml"), a2.emulator)


def test_all_problems_at_once() -> None:
    problems = _problems(
        """
profile = "a2"
colour = "red"
[[steps]]
at_ms = 500
do = "occur"
chip = 9
code = "80E0180"
severity = "terrible"
[[steps]]
at_ms = 20
do = "slow"
function = "initt"
delay_ms = 0
speed = 1
[[steps]]
at_ms = -1
do = "jump"
[[steps]]
at_ms = "soon"
do = "drop"
[[steps]]
at_ms = 600
do = "hang"
function = "dcmi_init"
chip = 0
[[steps]]
at_ms = 700
do = "fail"
function = "get_device_health"
return_code = 8005
"""
    )
    places = [problem.split(": ")[0] for problem in problems]
    assert places == [
        "steps[0].code",
        "steps[0].severity",
        "steps[1].function",
        "steps[1].delay_ms",
        "steps[1].speed",
        "steps[2]",
        "steps[3].at_ms",
        "steps[3].chip",
        "steps[5].return_code",
        "colour",
        "steps[0].chip",
        "steps[4].chip",
        "steps[1].at_ms",
        "steps[2].at_ms",
    ]
    assert "a2 has the chips 0 to 7, not 9" in problems[10]
    assert "leave the chip out" in problems[11]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("steps = [", "file: is not TOML: "),
        (f"steps = {'[' * 5000}", "file: has tables or lists nested more than 32 levels deep"),
        ("", "steps: is missing"),
        ("steps = 3", "steps: must be a list"),
        ("steps = [3]", "steps[0]: must be a table"),
        ("steps = [{}]", "steps[0]: 'do' is missing"),
        ('steps = [{do = "fly"}]', "steps[0]: 'do' must not be 'fly'; write one of 'occur', "),
        ('profile = "a9"\nsteps = []', "profile: must be 'a2', 'a3', "),
        ('profile = ["a2"]\nsteps = []', "profile: must be 'a2', 'a3', "),
        (
            'steps = [{at_ms = 0, do = "drop", chip = true}]',
            "steps[0].chip: must be a whole number",
        ),
        ('steps = [{at_ms = 0, do = "drop", chip = 1.0}]', "steps[0].chip: must be a whole number"),
        ('steps = [{at_ms = 86400001, do = "drop", chip = 1}]', "steps[0].at_ms: must be at most "),
    ],
)
def test_wrong_steps_are_named_with_their_place(text: str, problem: str) -> None:
    assert _problems(text)[0].startswith(problem)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    for path, what in (
        (tmp_path / "none", "cannot be read: No such file"),
        (tmp_path, "cannot be read: Is a directory"),
        (binary, "is not UTF-8"),
    ):
        with pytest.raises(ConfigurationError, match=re.escape(what)):
            read_scenario(path)


def test_the_examples_of_the_documentation(tmp_path: Path) -> None:
    examples = re.findall(r"```toml\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    assert len(examples) >= 1
    for example in examples:
        path = tmp_path / "example.toml"
        path.write_text(example, "utf-8")
        assert len(read_scenario(path).steps) > 1


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False)
    | st.sampled_from(["occur", "hang", "slow", "a2", "a3", "80E01801", "dcmi_init", "major", ""])
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["at_ms", "do", "chip", "code", "function", "steps", "profile", "x"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


def _toml(value: object) -> str:
    match value:
        case None:
            return '""'
        case bool():
            return str(value).lower()
        case str():
            return '"' + "".join(f"\\U{ord(character):08X}" for character in value) + '"'
        case list():
            return "[" + ", ".join(map(_toml, value)) + "]"
        case dict():
            return "{" + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + "}"
        case _:
            return repr(value)


def _steps_or_problems(text: str) -> tuple[int | None, int]:
    """Return the count of steps, or the count of problems; any other error fails."""
    try:
        return len(parse_scenario(text, "scenario.toml").steps), 0
    except ConfigurationError as error:
        return None, len(error.problems)


@pytest.mark.slow
@examples(200)
@given(st.lists(_values, max_size=4), _values)
def test_nothing_makes_the_parser_fail_in_another_way(steps: list[object], profile: object) -> None:
    text = f"steps = {_toml(steps)}\nprofile = {_toml(profile)}\n"
    read, problems = _steps_or_problems(text)
    assert read == len(steps) or problems > 0


@examples(200)
@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    read, problems = _steps_or_problems(text)
    assert (read is None) == (problems > 0)
