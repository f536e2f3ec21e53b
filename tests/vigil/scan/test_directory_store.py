"""``vigil scan`` of a directory that an agent of root would refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.tiers import only_root
from vigil.exit_status import ExitStatus
from vigil.scan.store import check_directory

if TYPE_CHECKING:
    from pathlib import Path


@only_root("only root refuses it")
async def test_a_directory_that_others_may_write_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    url = f"directory:{tmp_path}"
    found = await check_directory(url, "node-1", others_may_write=False)
    assert found.means is ExitStatus.WRONG_USE
    assert "others may write" in found.found
    allowed = await check_directory(url, "node-1", others_may_write=True)
    assert allowed.means is ExitStatus.OK
