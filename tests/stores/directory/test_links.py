"""Links and special files where a directory store writes, and who else may write there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from contract.errors import ConfigurationError, StoreRefused
from service.files.atomic import replace
from stores.address import open_store
from stores.base import Beat, Document
from stores.directory.lock import DirectoryLock
from tests.tiers import only_root

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stores.base import Store

GOOD = Document("mindx-dl", "one", {"text": "good"})
BEAT = Beat("node-1", "host-a", 5.0, 7)
SECRET = "what belongs to root\n"

as_root = only_root("only root writes everywhere")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Create the directory of the fixture ``directory``, with its folders; return it."""
    place = tmp_path / "store"
    for folder in ("mindx-dl", "beats"):
        (place / folder).mkdir(parents=True)
    return place


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Return a file that must not change by way of the store."""
    file = tmp_path / "target"
    file.write_text(SECRET)
    file.chmod(0o644)
    return file


def untouched(target: Path) -> bool:
    return target.read_text() == SECRET and target.stat().st_mode & 0o777 == 0o644


def symbolic(place: Path, target: Path) -> None:
    place.symlink_to(target)


def hard(place: Path, target: Path) -> None:
    place.hardlink_to(target)


LINKS = pytest.mark.parametrize("link", [symbolic, hard])


@LINKS
async def test_a_draft_that_is_a_link_is_replaced(
    directory: Store, root: Path, target: Path, link: Callable[[Path, Path], None]
) -> None:
    link(root / "mindx-dl/.one.new", target)
    link(root / "beats/.node-1.new", target)
    await directory.put(GOOD)
    await directory.beat(BEAT)
    assert untouched(target)
    assert await directory.get("mindx-dl", "one") is not None
    assert [beat.node for beat in await directory.beats()] == ["node-1"]
    for written in ("mindx-dl/one.json", "beats/node-1.json"):
        assert (root / written).stat().st_nlink == 1
        assert not (root / written).is_symlink()


@LINKS
async def test_a_document_that_is_a_link_is_replaced(
    directory: Store, root: Path, target: Path, link: Callable[[Path, Path], None]
) -> None:
    link(root / "mindx-dl/one.json", target)
    await directory.put(GOOD)
    assert untouched(target)
    assert await directory.get("mindx-dl", "one") is not None


@LINKS
async def test_a_lock_that_is_a_link_is_refused(
    directory: Store, root: Path, target: Path, link: Callable[[Path, Path], None]
) -> None:
    for lock in ("mindx-dl/.lock", "beats/.lock", ".aggregator.lock"):
        link(root / lock, target)
    with pytest.raises(StoreRefused, match=r"mindx-dl/\.lock is (a symbolic|not a file)"):
        await directory.put(GOOD)
    with pytest.raises(StoreRefused, match=r"beats/\.lock is (a symbolic|not a file)"):
        await directory.beat(BEAT)
    with pytest.raises(StoreRefused, match=r"\.aggregator\.lock is (a symbolic|not a file)"):
        DirectoryLock(root).take("me")
    assert untouched(target)
    # Other places go on.
    await directory.put(Document("kube-system", "one", {}))


async def test_a_namespace_that_is_a_link_is_not_written_to(
    directory: Store, root: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for folder in ("mindx-dl", "beats"):
        (root / folder).rmdir()
        (root / folder).symlink_to(elsewhere)
    with pytest.raises(StoreRefused, match="mindx-dl is a symbolic link"):
        await directory.put(GOOD)
    with pytest.raises(StoreRefused, match="beats is a symbolic link"):
        await directory.beat(BEAT)
    with pytest.raises(StoreRefused, match="beats is a symbolic link"):
        await directory.forget_beat("node-1")
    with pytest.raises(StoreRefused, match="mindx-dl is a symbolic link"):
        await directory.delete("mindx-dl", "one")
    assert list(elsewhere.iterdir()) == []


async def test_special_files_block_no_other(directory: Store, root: Path) -> None:
    os.mkfifo(root / "mindx-dl/.lock")
    os.mkfifo(root / ".aggregator.lock")
    os.mkfifo(root / "beats/.node-1.new")
    with pytest.raises(StoreRefused, match=r"\.lock is not a file of one name"):
        await directory.put(GOOD)
    with pytest.raises(StoreRefused, match=r"\.aggregator\.lock is not a file of one name"):
        DirectoryLock(root).take("me")
    await directory.beat(BEAT)
    (root / "beats/.node-1.new").mkdir()
    with pytest.raises(StoreRefused, match=r"beats/node-1\.json"):
        await directory.beat(BEAT)
    (root / "beats/.node-1.new").rmdir()
    await directory.beat(BEAT)


def test_a_small_file_of_the_state_directory_follows_no_link(tmp_path: Path, target: Path) -> None:
    (tmp_path / ".listen.new").symlink_to(target)
    replace(tmp_path / "listen", b"text")
    assert untouched(target)
    assert (tmp_path / "listen").read_bytes() == b"text"


@as_root
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775, 0o2770, 0o1757])
async def test_root_refuses_a_directory_that_others_may_write(tmp_path: Path, mode: int) -> None:
    place = tmp_path / "shared"
    place.mkdir()
    os.chown(place, 0, 65534)
    place.chmod(mode)
    url = f"directory:{place}"
    with pytest.raises(ConfigurationError, match=r"others may write .*directory\.others_may_write"):
        open_store(url)
    store = open_store(url, others_may_write=True)
    await store.put(GOOD)
    place.chmod(0o755)
    await open_store(url).put(GOOD)


@as_root
async def test_root_refuses_a_directory_of_another_user(tmp_path: Path) -> None:
    place = tmp_path / "theirs"
    place.mkdir(mode=0o755)
    store = open_store(f"directory:{place}")
    os.chown(place, 65534, 65534)
    with pytest.raises(ConfigurationError, match="others may write"):
        open_store(f"directory:{place}")
    # One that came later, as with a mount, is refused when it is written to.
    with pytest.raises(StoreRefused, match="others may write"):
        await store.put(GOOD)
    os.chown(place, 0, 0)
    await store.put(GOOD)


async def test_a_file_in_the_place_of_the_directory_is_refused(
    directory: Store, tmp_path: Path
) -> None:
    (tmp_path / "store").touch()
    with pytest.raises(StoreRefused, match="store is not a directory"):
        await directory.put(GOOD)


@as_root
async def test_a_directory_that_is_made_is_closed_to_others(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = open_store(f"directory:{tmp_path / 'new'}")
        await store.put(GOOD)
        assert (tmp_path / "new").stat().st_mode & 0o777 == 0o755
        assert (tmp_path / "new/mindx-dl").stat().st_mode & 0o777 == 0o755
    finally:
        os.umask(before)
