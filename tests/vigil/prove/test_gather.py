"""Journals that cannot be read are not known, each with its reason; two of one node are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent.journal.file import FILE_NAME, JournalFile
from agent.journal.rows import JournalRow, RowKind, body_of
from agent.policy.state import PolicyState
from contract.errors import ConfigurationError
from tests.vigil.prove.forged import Site
from vigil.exit_status import ExitStatus
from vigil.prove.gather import Journals
from vigil.prove.match import Proof, prove
from vigil.prove.report import report_of, show

if TYPE_CHECKING:
    from pathlib import Path


def journal_in(directory: Path, node: str) -> Path:
    directory.mkdir()
    file = JournalFile(directory / FILE_NAME)
    file.write([JournalRow(1, 1, RowKind.SNAPSHOT, body_of(PolicyState(node, "boot")))])
    file.close()
    return directory


def test_two_journals_of_one_node_are_refused(tmp_path: Path) -> None:
    directories = [journal_in(tmp_path / name, "node-1") for name in ("a", "b")]
    with pytest.raises(
        ConfigurationError, match="b has the journal of node-1, as another directory has"
    ):
        Journals().add_files(directories, None)


def test_an_agent_that_does_not_answer_is_not_known(tmp_path: Path) -> None:
    journals = Journals()
    journals.add_files([journal_in(tmp_path / "a", "node-1"), tmp_path / "missing"], None)
    journals.add_pages("http://{node}:1", ["127.0.0.1", "node-1"], None)
    assert set(journals.by_node) == {"node-1"}
    assert "cannot be read" in journals.not_known[str(tmp_path / "missing")]
    assert "gives no answer" in journals.not_known["127.0.0.1"]


@pytest.mark.parametrize(
    ("missing", "status"), [(0, ExitStatus.OK), (1, ExitStatus.NOT_WELL), (2, ExitStatus.OUTSIDE)]
)
def test_more_than_one_missing_journal_in_a_hundred_is_no_proof(
    missing: int, status: ExitStatus
) -> None:
    nodes = [f"node-{number}" for number in range(100 - missing)]
    not_known = {f"missing-{number}": "no answer" for number in range(missing)}
    proof = prove([Site().journal(1.0)], None, None)
    report = report_of(proof, nodes, not_known, "nothing")
    assert report.status == status
    assert report.gaps_by_name == ({"not known": missing} if missing else {})


def test_the_first_of_many_missing_journals_are_named_and_the_others_counted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A worker of pytest-xdist has a width of its own.
    monkeypatch.setenv("COLUMNS", "120")
    not_known = {f"missing-{number}": "no answer" for number in range(7)}
    show(report_of(Proof(), ["node-1"], not_known, "nothing"), as_json=False, utc=True)
    names = "missing-0, missing-1, missing-2, missing-3, missing-4 and 2 more"
    assert f"1 node; not known: 7 nodes ({names})" in capsys.readouterr().out
