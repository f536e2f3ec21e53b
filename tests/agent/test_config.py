"""The agent's configuration: its layers, and all its problems at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.config import AgentConfiguration, load_agent
from contract.errors import ConfigurationError
from tests.parts.verbs import vigil_process

WRONG = """
node_name = "Upper_Case"
stoer = "kubernetes:"
listen = "nowhere"
trust_driver = "perhaps"

[chip_faults]
audit_period_seconds = 0
card_lost_after = 5
"""


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_defaults() -> None:
    loaded = load_agent(None, {"NODE_NAME": "node-1"}, {})
    assert loaded == AgentConfiguration(node_name="node-1")
    assert loaded.store == "kubernetes:"
    assert loaded.driver_root is None
    assert loaded.state_dir == Path("/var/lib/npu-vigil")


def test_our_own_variable_beats_node_name() -> None:
    both = {"NODE_NAME": "general", "VIGIL_NODE_NAME": "ours"}
    assert load_agent(None, both, {}).node_name == "ours"


@pytest.mark.parametrize(
    "name", ["", "Node", "node_1", "-node", "node-", "a..b", "n" * 231, "a b", "a/b", "k\u00f6ln"]
)
def test_a_node_name_that_kubernetes_would_refuse(name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_agent(None, {}, {"node_name": name})
    assert [problem.where for problem in caught.value.problems] == ["--node-name"]


@pytest.mark.parametrize(
    ("variable", "value", "what"),
    [
        ("VIGIL_DOCUMENTS", "", "is empty; at least one is needed"),
        ("VIGIL_DOCUMENTS", "device-info,nodeinfo", "'device-info' or 'node-info'; given 'nodein"),
        ("VIGIL_HEARTBEAT_INTERVAL_SECONDS", "0", "must be at least 1.0; given 0.0"),
        ("VIGIL_CHIP_FAULTS_CARD_LOST_AFTER_SECONDS", "-1", "must be at least 10.0; given -1.0"),
        ("VIGIL_LISTEN", ":9820", "is not HOST:PORT"),
        ("VIGIL_LISTEN", "127.0.0.1:", "is not HOST:PORT"),
        ("VIGIL_LISTEN", "127.0.0.1:http", "is not HOST:PORT"),
        ("VIGIL_LISTEN", "127.0.0.1:65536", "is not HOST:PORT"),
    ],
)
def test_problem_of_a_variable_is_reported_in_words(variable: str, value: str, what: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_agent(None, {"NODE_NAME": "node-1", variable: value}, {})
    (problem,) = caught.value.problems
    assert problem.where == variable
    assert what in problem.what


def test_no_node_name_at_all() -> None:
    with pytest.raises(ConfigurationError, match="VIGIL_NODE_NAME or --node-name"):
        load_agent(None, {}, {})


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    file = written(tmp_path / "agent.toml", WRONG)
    with pytest.raises(ConfigurationError) as caught:
        load_agent(file, {"VIGIL_STORE": "ftp://x"}, {})
    assert {problem.where for problem in caught.value.problems} == {
        "node_name",
        "stoer",
        "listen",
        "trust_driver",
        "chip_faults.audit_period_seconds",
        "chip_faults.card_lost_after",
        "VIGIL_STORE",
    }
    assert "did you mean store?" in str(caught.value)


@pytest.mark.parametrize("content", [None, b"= nonsense", b"\xff\xfe"])
def test_a_file_that_is_none(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "agent.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"agent\.toml"):
        load_agent(file, {}, {})


@pytest.mark.daemon
def test_validate_distinguishes_kinds(tmp_path: Path) -> None:
    agent = written(tmp_path / "a.toml", 'store = "directory:/x"\n')
    done = vigil_process("validate", agent)
    assert (done.returncode, done.stdout) == (0, f"{agent}: ok (agent)\n")
    aggregator = written(tmp_path / "g.toml", 'store = ["directory:/x"]\n')
    done = vigil_process("validate", aggregator)
    assert (done.returncode, done.stdout) == (0, f"{aggregator}: ok (aggregator)\n")
    assert (
        vigil_process("validate", written(tmp_path / "h.toml", "publish = [3]\n")).returncode == 2
    )
    scenario = written(
        tmp_path / "s.toml",
        '[[steps]]\nat_ms = 0\ndo = "occur"\nchip = 1\ncode = "80E01801"\n',
    )
    done = vigil_process("validate", scenario)
    assert (done.returncode, done.stdout) == (0, f"{scenario}: ok (scenario)\n")
    wrong = written(
        tmp_path / "w.toml",
        '[[steps]]\nat_ms = 0\ndo = "explode"\n[[steps]]\nat_ms = -1\ndo = "reset"\n',
    )
    done = vigil_process("validate", wrong)
    assert done.returncode == 2
    assert "steps[0]" in done.stderr
    assert "steps[1].at_ms" in done.stderr
    assert vigil_process("validate", agent, "--kind", "scenario").returncode == 2


def test_documents_are_named_in_every_layer(tmp_path: Path) -> None:
    node = {"NODE_NAME": "node-1"}
    assert load_agent(None, node, {}).documents == ("device-info", "node-info")
    file = written(tmp_path / "agent.toml", 'documents = ["node-info"]\n')
    assert load_agent(file, node, {}).documents == ("node-info",)
    named = node | {"VIGIL_DOCUMENTS": "device-info, node-info"}
    assert load_agent(file, named, {}).documents == ("device-info", "node-info")
    assert load_agent(file, named, {"documents": "device-info"}).documents == ("device-info",)


@pytest.mark.parametrize("text", ["", "node-info,switch-info"])
def test_documents_of_unknown_kinds_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_agent(None, {"NODE_NAME": "node-1"}, {"documents": text})
    assert {problem.where for problem in caught.value.problems} == {"--documents"}


@pytest.mark.parametrize("seconds", ["1", "5", "300"])
def test_the_interval_of_the_heartbeat(seconds: str) -> None:
    flag = {"heartbeat.interval_seconds": float(seconds)}
    assert load_agent(None, {"NODE_NAME": "n"}, flag).heartbeat.interval_seconds == float(seconds)
    environment = {"NODE_NAME": "n", "VIGIL_HEARTBEAT_INTERVAL_SECONDS": seconds}
    assert load_agent(None, environment, {}).heartbeat.interval_seconds == float(seconds)


@pytest.mark.parametrize("seconds", ["0", "0.5", "301", "-5", "nan", "often"])
def test_an_interval_that_is_none(seconds: str) -> None:
    environment = {"NODE_NAME": "n", "VIGIL_HEARTBEAT_INTERVAL_SECONDS": seconds}
    with pytest.raises(ConfigurationError, match="VIGIL_HEARTBEAT_INTERVAL_SECONDS"):
        load_agent(None, environment, {})


@pytest.mark.parametrize("generation", ["lease", "annotation", "cm-v5", "cm-v6rc"])
def test_generations_of_the_heartbeat(tmp_path: Path, generation: str) -> None:
    node = {"NODE_NAME": "n"}
    file = written(tmp_path / "agent.toml", f'[heartbeat]\ngeneration = "{generation}"\n')
    assert load_agent(file, node, {}).heartbeat.generation == generation
    flag = {"heartbeat.generation": generation}
    assert load_agent(None, node, flag).heartbeat.generation == generation


@pytest.mark.parametrize(
    ("variables", "what"),
    [
        ({"VIGIL_HEARTBEAT_GENERATION": "cm-v6"}, "'cm-v6'"),
        (
            {"VIGIL_HEARTBEAT_GENERATION": "cm-v5", "VIGIL_DOCUMENTS": "device-info"},
            "is in node-info, which is not in `documents`",
        ),
        (
            {"VIGIL_HEARTBEAT_GENERATION": "annotation", "VIGIL_STORE": "directory:/x"},
            "needs the store kubernetes:",
        ),
    ],
)
def test_an_old_heartbeat_that_has_no_place(variables: dict[str, str], what: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_agent(None, {"NODE_NAME": "n"} | variables, {})
    assert what in str(caught.value)
