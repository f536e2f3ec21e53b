"""What the workers of a run share is made once, also after an attempt that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.parts.once import RUN_FOLDER, once, run_folder

if TYPE_CHECKING:
    from pathlib import Path


def test_a_folder_is_filled_once_for_all_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(RUN_FOLDER, raising=False)
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    filled: list[Path] = []

    def breaks_off(folder: Path) -> None:
        (folder / "part").touch()
        raise KeyboardInterrupt

    def fill(folder: Path) -> None:
        assert not list(folder.iterdir())
        (folder / "content").touch()
        filled.append(folder)

    with pytest.raises(KeyboardInterrupt):
        once(tmp_path / "gw0", "shared", breaks_off)
    for worker in ("gw0", "gw1"):
        assert once(tmp_path / worker, "shared", fill) == tmp_path / "shared"
    assert filled == [tmp_path / "shared"]
    assert (tmp_path / "shared" / "content").exists()


def test_the_processes_of_make_unit_share_the_folder_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUN_FOLDER, str(tmp_path))
    assert run_folder(tmp_path / "pytest-1") == run_folder(tmp_path / "pytest-2") == tmp_path
