"""``vigil scan`` and the namespaces that the aggregator reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from vigil.scan import configuration
from vigil.scan.configuration import PUBLIC_FAULTS, RANK_TABLES, check_namespaces
from vigil.scan.findings import Check, CheckState

if TYPE_CHECKING:
    from pathlib import Path

    from tests.vigil.scan.server import Server

FILE = """
[public_faults]
namespaces = ["mindx-dl", "cluster-system"]
[rank_tables]
namespaces = ["inference"]
"""


def by_name(checks: tuple[Check, ...]) -> dict[str, Check]:
    return {check.name: check for check in checks}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace the usual path of the aggregator's file; return the new one."""
    monkeypatch.setattr(configuration, "USUAL_FILE", tmp_path / "usual.toml")
    return tmp_path / "usual.toml"


async def test_where_no_aggregator_is_configured_nothing_is_claimed() -> None:
    for check in await check_namespaces(None, {"VIGIL_STORE": "nonsense"}):
        assert check.state is CheckState.NOT_APPLICABLE
        assert "--aggregator-config" in check.found


async def test_all_namespaces_are_shown_with_what_to_do(elsewhere: Path) -> None:
    elsewhere.write_text('store = ["directory:/srv"]\n')
    found = by_name(await check_namespaces(None, {}))
    assert found[PUBLIC_FAULTS].found == found[RANK_TABLES].found == "all namespaces"
    assert found[PUBLIC_FAULTS].state is CheckState.OK
    assert "public_faults.namespaces" in found[PUBLIC_FAULTS].advice
    assert found[RANK_TABLES].advice == ""


async def test_the_environment_of_a_pod_counts_and_beats_the_file(elsewhere: Path) -> None:
    elsewhere.write_text(FILE)
    variables = {"VIGIL_PUBLIC_FAULTS_NAMESPACES": "tenant-a, tenant-b"}
    found = by_name(await check_namespaces(None, variables))
    assert found[PUBLIC_FAULTS].facts == {"namespaces": ["tenant-a", "tenant-b"]}
    assert found[RANK_TABLES].facts == {"namespaces": ["inference"]}
    elsewhere.unlink()
    assert by_name(await check_namespaces(None, variables))[RANK_TABLES].found == "all namespaces"


@pytest.mark.parametrize("text", ["namespaces = []", 'namespaces = ["Upper"]', "namespaces = 3"])
async def test_a_wrong_file_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "aggregator.toml"
    file.write_text(f"[public_faults]\n{text}\n")
    for check in await check_namespaces(file, {}):
        assert check.state is CheckState.PROBLEM
        assert "public_faults.namespaces" in check.found
        assert check.advice


def test_both_are_in_the_report(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "aggregator.toml"
    file.write_text(FILE)
    scanned = server.scan("--aggregator-config", str(file))
    assert scanned.check(PUBLIC_FAULTS)["facts"]["namespaces"] == ["mindx-dl", "cluster-system"]
    assert scanned.check(RANK_TABLES)["facts"]["namespaces"] == ["inference"]
