"""Layers become one model; every problem is reported at once with the layer it came from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import pytest
from msgspec import Meta, field

from contract.errors import ConfigurationError
from contract.settings import Section
from service.configuration import load, parse_toml


class Audit(Section, frozen=True):
    period_seconds: Annotated[float, Meta(gt=0)] = 60.0
    chips: tuple[int, ...] = ()
    devices: dict[str, tuple[int, ...]] = field(default_factory=dict)
    names: dict[str, Literal["x", "y"]] = field(default_factory=dict)


class Example(Section, frozen=True):
    node_name: str
    state_dir: Path = Path("/var/lib/example")
    store: tuple[str, ...] = ("kubernetes:",)
    trust: bool = False
    audit: Audit = Audit()


def loaded(
    file: dict[str, object] | None = None,
    environment: dict[str, str] | None = None,
    command_line: dict[str, object] | None = None,
) -> Example:
    return load(
        Example,
        file=file,
        environment=environment or {},
        command_line=command_line or {},
        source="example.toml",
    )


def problems(**layers: object) -> dict[str, str]:
    with pytest.raises(ConfigurationError) as caught:
        loaded(**layers)  # type: ignore[arg-type]
    assert len({p.where for p in caught.value.problems}) == len(caught.value.problems)
    return {problem.where: problem.what for problem in caught.value.problems}


def test_command_line_beats_environment_beats_file() -> None:
    file: dict[str, object] = {
        "node_name": "file",
        "state_dir": "/file",
        "audit": {"period_seconds": 1, "chips": [1]},
    }
    environment = {"VIGIL_STATE_DIR": "/environment", "VIGIL_NODE_NAME": "environment"}
    assert loaded(file, environment, {"node_name": "line", "state_dir": None}) == Example(
        node_name="line",
        state_dir=Path("/environment"),
        audit=Audit(period_seconds=1.0, chips=(1,)),
    )


def test_text_is_read_as_the_options_type() -> None:
    environment = {
        "VIGIL_NODE_NAME": "n1",
        "VIGIL_STORE": "kubernetes:, directory:/x",
        "VIGIL_TRUST": "true",
        "VIGIL_AUDIT_PERIOD_SECONDS": "2.5",
        "VIGIL_AUDIT_CHIPS": "1,2",
        "VIGIL_UNRELATED": "left alone",
    }
    assert loaded(environment=environment) == Example(
        node_name="n1",
        store=("kubernetes:", "directory:/x"),
        trust=True,
        audit=Audit(period_seconds=2.5, chips=(1, 2)),
    )


def test_a_table_is_read_from_pairs() -> None:
    text = " a = 0 1 ,b=,c=3"
    found = loaded({"node_name": "n"}, {"VIGIL_AUDIT_DEVICES": text})
    assert found.audit.devices == {"a": (0, 1), "b": (), "c": (3,)}
    assert loaded({"node_name": "n"}, {"VIGIL_AUDIT_DEVICES": ""}).audit.devices == {}


def test_a_table_of_texts_is_read_from_pairs() -> None:
    found = loaded({"node_name": "n"}, {"VIGIL_AUDIT_NAMES": "a = x ,b=y"})
    assert found.audit.names == {"a": "x", "b": "y"}
    for text in ("a", "a=", "a=z", "a=x y"):
        refused = problems(file={"node_name": "n"}, environment={"VIGIL_AUDIT_NAMES": text})
        assert refused.keys() == {"VIGIL_AUDIT_NAMES"}


@pytest.mark.parametrize("text", ["a", "a=x", "a=1;2"])
def test_a_table_with_a_wrong_pair_is_refused(text: str) -> None:
    found = problems(file={"node_name": "n"}, environment={"VIGIL_AUDIT_DEVICES": text})
    assert found.keys() == {"VIGIL_AUDIT_DEVICES"}


def test_values_of_the_command_line_may_be_typed_already() -> None:
    line = {"node_name": "n1", "store": ["a", "b"], "state_dir": Path("/s"), "trust": True}
    assert loaded(command_line=line) == Example(
        node_name="n1", store=("a", "b"), state_dir=Path("/s"), trust=True
    )


def test_every_problem_is_reported_with_its_layer() -> None:
    found = problems(
        file={
            "state_dir": 5,
            "audit": {"period_seconds": 0, "chips": [1, "x"], "period_second": 1},
            "wrong": True,
        },
        environment={"VIGIL_TRUST": "perhaps"},
    )
    assert set(found) == {
        "VIGIL_TRUST",
        "node_name",
        "state_dir",
        "audit.period_seconds",
        "audit.chips[1]",
        "audit.period_second",
        "wrong",
    }
    assert "VIGIL_NODE_NAME or --node-name" in found["node_name"]
    assert "did you mean period_seconds?" in found["audit.period_second"]
    assert "known here: audit, node_name" in found["wrong"]
    assert "'perhaps'" in found["VIGIL_TRUST"]


def test_a_bad_override_is_reported_once_and_named_by_its_layer() -> None:
    assert set(
        problems(command_line={"node_name": ""}, environment={"VIGIL_AUDIT_CHIPS": "a"})
    ) == {"VIGIL_AUDIT_CHIPS"}
    found = problems(file={"node_name": "n"}, environment={"VIGIL_AUDIT_PERIOD_SECONDS": "-1"})
    assert set(found) == {"VIGIL_AUDIT_PERIOD_SECONDS"}


def test_a_value_where_a_table_belongs() -> None:
    found = problems(
        file={"node_name": "n", "audit": 3}, environment={"VIGIL_AUDIT_PERIOD_SECONDS": "1"}
    )
    assert set(found) == {"audit"}


def test_a_file_that_is_not_toml() -> None:
    with pytest.raises(ConfigurationError, match=r"example\.toml.*\n.*is not TOML.*line 1"):
        parse_toml("a = = 1", "example.toml")


@pytest.mark.parametrize(
    "text", [f"a = {'[' * 5000}", f"a = {'[' * 50}{']' * 50}", "a." * 900 + "a = 1"]
)
def test_a_file_that_is_nested_too_deeply(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"example\.toml.*\n.*nested more than 32 levels"):
        parse_toml(text, "example.toml")
