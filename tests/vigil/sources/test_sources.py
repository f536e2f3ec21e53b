"""Which of several sources answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.aggregator.nodes import faulty, report
from tests.parts.verbs import run_verb
from tests.vigil.sources.recorded_documents import contents
from tests.vigil.stand import AGENT, Stand
from tests.vigil.verbs import aggregator

if TYPE_CHECKING:
    from pathlib import Path


def test_the_agent_is_asked_before_the_aggregator(tmp_path: Path) -> None:
    with Stand(tmp_path / "agent.sock").serving() as agent:
        agent.answers = {"/api/v1/status": AGENT}
        with Stand(tmp_path / "aggregator.sock").serving() as other:
            other.answers = aggregator()
            _, output, _ = run_verb("status", "--state-dir", str(tmp_path), COLUMNS="300")
            assert b"answered by: agent of node-1" in output
            assert other.asked == []
            _, output, _ = run_verb("jobs", "--state-dir", str(tmp_path), COLUMNS="300")
            assert b"answered by: aggregator, which leads" in output


@pytest.mark.slow
def test_an_agent_of_another_node_leaves_the_answer_to_the_next(tmp_path: Path) -> None:
    contents(tmp_path / "store", report("n1", faulty()))
    where = ("--state-dir", str(tmp_path))
    with Stand(tmp_path / "agent.sock").serving() as agent:
        agent.answers = {"/api/v1/status": AGENT}
        for verb in ("status", "explain"):
            documents = ("--store", f"directory:{tmp_path / 'store'}")
            status, output, errors = run_verb(verb, "n1", *where, *documents, COLUMNS="300")
            assert (status, errors) == (1, "")
            assert b"documents of a store, without any daemon" in output
            status, output, errors = run_verb(verb, "n1", *where)
            assert (status, output) == (2, b"")
            assert "the agent" in errors


def test_a_daemon_without_an_answer_is_named_and_the_next_is_asked(tmp_path: Path) -> None:
    with Stand(tmp_path / "agent.sock").serving() as agent:
        agent.raw = b"\x1b[31m\r\n"
        with Stand(tmp_path / "aggregator.sock").serving() as other:
            other.answers = aggregator()
            status, output, errors = run_verb("faults", "--state-dir", str(tmp_path))
    assert status == 1
    assert b"aggregator, which leads" in output
    assert f"unix:{tmp_path / 'agent.sock'} gives no answer" in errors
    assert errors.endswith("; asking the next source\n")
    assert "\x1b" not in errors


def test_an_address_that_is_none_is_wrong_use(tmp_path: Path) -> None:
    for option in ("--server", "--store"):
        status, output, errors = run_verb("status", "--state-dir", str(tmp_path), option, "ftp://x")
        assert (status, output) == (2, b"")
        assert "ftp://x" in errors


def test_a_kubeconfig_that_is_none_is_wrong_use(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("{")
    where = ("--state-dir", str(tmp_path), "--kubeconfig", str(tmp_path / "config"))
    status, output, errors = run_verb("status", *where)
    assert (status, output) == (2, b"")
    assert "is not valid YAML" in errors
