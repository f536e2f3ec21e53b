"""``vigil scan`` names a package of another distribution that hides one of ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from release.archives import ZIP_EPOCH, ArchiveMember, zip_archive
from release.backend import with_record
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.exec
_METADATA = "other-1.0.dist-info"
_WHEEL = (
    ArchiveMember("advisor/__init__.py", b""),
    ArchiveMember(f"{_METADATA}/METADATA", b"Metadata-Version: 2.1\nName: other\nVersion: 1.0\n"),
    ArchiveMember(
        f"{_METADATA}/WHEEL", b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    ),
    ArchiveMember(f"{_METADATA}/top_level.txt", b"advisor\n"),
)


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Install another distribution that has a package ``advisor``; return its folder."""
    wheel, folder = tmp_path / "other-1.0-py3-none-any.whl", tmp_path / "installed"
    wheel.write_bytes(zip_archive(with_record(_WHEEL, _METADATA), ZIP_EPOCH))
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps")
    subprocess.run([*pip, "--target", folder, wheel], check=True)
    return folder


def _scan(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "vigil", "scan", "--node-name", "node-1"],
        cwd=folder.parent,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=False,
    )


@pytest.mark.slow
def test_a_package_earlier_on_the_path_is_named(other: Path) -> None:
    done = _scan(other)
    assert done.returncode == 2
    assert f"advisor: it comes from {other / 'advisor'}; install NPU Vigil" in done.stderr


@pytest.mark.slow
def test_a_distribution_whose_files_mix_with_ours_is_named(other: Path) -> None:
    # As in a shared environment, where the files that were installed last are there.
    shutil.rmtree(other / "advisor")
    done = _scan(other)
    assert done.returncode == 2
    assert "advisor: it comes from the distribution other; install NPU Vigil" in done.stderr
