"""The version that an agent shows."""

from __future__ import annotations

import sys
from importlib import metadata
from typing import TYPE_CHECKING

from agent.collect_status import version

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_version_is_that_of_the_metadata() -> None:
    assert version() == metadata.version("npu-vigil")


def test_the_version_of_the_first_folder_on_the_path_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, number in (("first", "1.2rc3+site.4"), ("second", "1.1")):
        (tmp_path / place / f"npu_vigil-{number}.dist-info").mkdir(parents=True)
    places = [str(tmp_path / place) for place in ("missing", "first", "second")]
    monkeypatch.setattr(sys, "path", [*places, *sys.path])
    assert version() == "1.2rc3+site.4"


def test_an_agent_without_metadata_is_unpackaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert version() == "unpackaged"


def test_an_entry_of_the_path_that_cannot_be_read_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "npu_vigil-1.2.dist-info").mkdir()
    # A name that is too long is an error for root, too, which may search every folder.
    unreadable = str(tmp_path / ("long" * 100))
    monkeypatch.setattr(sys, "path", [unreadable, str(tmp_path)])
    assert version() == "1.2"
