"""A driver that is installed again while its library is in use."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from contract.errors import DriverCallStuck, DriverGone, DriverNotFound
from dcmi_shim.library.discovery import VendorPaths, find_library
from dcmi_shim.library.driver_upgrade import Installed
from tests.dcmi_shim.conftest import QUICK, SCALED, running
from tests.parts.deadlines import stays

if TYPE_CHECKING:
    from collections.abc import Callable

    from dcmi_shim.library.discovery import FoundLibrary
    from tests.dcmi_shim.conftest import SmallDriver


class Root:
    """A driver root whose library can be deleted and installed again."""

    def __init__(self, directory: Path, library: Path) -> None:
        self.directory = directory
        self._library = library
        self.install()

    @property
    def path(self) -> Path:
        return self.directory / "lib64" / "driver" / "libdcmi.so"

    def install(self) -> None:
        self.path.parent.mkdir(parents=True)
        shutil.copy(self._library, self.path)

    def remove(self) -> None:
        shutil.rmtree(self.directory)

    def find(self) -> FoundLibrary:
        return find_library(VendorPaths(self.directory, True, {}))


@pytest.fixture
def plain(small_driver: Callable[[str], SmallDriver]) -> SmallDriver:
    return small_driver("plain")


@pytest.fixture
def root(plain: SmallDriver, tmp_path: Path) -> Root:
    return Root(tmp_path / "driver", plain.library.path)


def _mapped(pid: int) -> list[str]:
    """Return the driver's library as the process has it mapped; deleted files are marked."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return [line for line in lines if "libdcmi.so" in line]


@pytest.mark.slow
async def test_a_replaced_library_is_loaded_while_the_old_one_still_answers(
    plain: SmallDriver, root: Root
) -> None:
    async with running(root.find(), find=root.find) as state:
        chip = (await state.driver.inventory()).chips[0]
        old = state.driver.child_pid
        assert old is not None
        root.remove()
        assert not await state.driver.is_in_place()
        assert await state.driver.health(chip) == 0, "the old process goes on"
        root.install()
        await state.until(lambda: state.driver.child_pid not in (None, old), 10)
        new = state.driver.child_pid
        assert new is not None
        assert not any("(deleted)" in line for line in _mapped(new))
        assert await state.driver.is_in_place()
        assert "its library was replaced on disk" in state.gaps
        plain.command("events")
        await state.until(lambda: len(state.events) >= 10, 10)
        await state.until(lambda: not Path(f"/proc/{old}").exists(), 10)


@pytest.mark.slow
async def test_nothing_is_started_while_the_files_stay_as_they_are(
    plain: SmallDriver, root: Root
) -> None:
    async with running(root.find(), find=root.find) as state:
        await state.driver.inventory()
        old = state.driver.child_pid
        (root.directory / "version.info").write_text("anything")
        beside = Installed(root.find(), root.find)
        assert not await beside.is_replaced(), "nothing is in use yet"
        for _ in range(3):
            assert not await beside.is_replaced()
        assert state.driver.child_pid == old
        assert state.gaps == ""


@pytest.mark.slow
async def test_a_library_that_is_replaced_while_its_process_is_gone(root: Root) -> None:
    async with running(root.find(), find=root.find) as state:
        chip = (await state.driver.inventory()).chips[0]
        pid = state.driver.child_pid
        assert pid is not None
        root.remove()
        os.kill(pid, signal.SIGKILL)
        await state.until(lambda: "no driver: no usable libdcmi.so" in state.gaps, 10)
        with pytest.raises(DriverGone, match=r"libdcmi\.so \(--driver-root\): does not exist"):
            await state.driver.health(chip)
        root.install()
        await state.until(lambda: state.driver.trouble is None, 10)
        assert await state.driver.health(chip) == 0


@pytest.mark.slow
async def test_calls_that_hung_in_the_old_library_are_made_again(
    plain: SmallDriver, root: Root
) -> None:
    never_probed = replace(SCALED, probe_seconds=600.0)
    async with running(root.find(), never_probed, root.find) as state:
        bad = (await state.driver.inventory()).chips[1]
        plain.command("hang-health-1")
        with pytest.raises(DriverCallStuck):
            await state.driver.health(bad)
        assert state.driver.stuck_calls()
        root.remove()
        root.install()
        plain.take_back("hang-health-1")
        await state.until(lambda: not state.driver.stuck_calls(), 10)
        assert await state.driver.health(bad) == 0


@pytest.mark.slow
async def test_a_library_that_cannot_be_loaded_replaces_none(
    root: Root, caplog: pytest.LogCaptureFixture
) -> None:
    whole = root.path.read_bytes()
    async with running(root.find(), find=root.find) as state:
        chip = (await state.driver.inventory()).chips[0]
        old = state.driver.child_pid
        half = root.path.with_name("half")
        half.write_bytes(whole[: len(whole) // 4])
        half.replace(root.path)
        await state.until(lambda: "the old one continues" in caplog.text, 10)
        assert state.driver.child_pid == old
        assert await state.driver.health(chip) == 0
        again = root.path.with_name("whole")
        again.write_bytes(whole)
        again.replace(root.path)
        await state.until(lambda: state.driver.child_pid not in (None, old), 10)
        assert caplog.text.count("the old one continues") == 1


@pytest.mark.slow
async def test_a_library_that_may_not_be_loaded_replaces_none(root: Root) -> None:
    whole = root.path.read_bytes()
    may_be_loaded = True

    def find() -> FoundLibrary:
        return find_library(VendorPaths(root.directory, may_be_loaded, {}))

    async with running(root.find(), find=find) as state:
        chip = (await state.driver.inventory()).chips[0]
        old = state.driver.child_pid
        may_be_loaded = False
        another = root.path.with_name("another")
        another.write_bytes(whole)
        another.chmod(0o666)
        another.replace(root.path)
        assert not await state.driver.is_in_place()
        await stays(5 * QUICK.look_seconds, because="five looks at the library pass")
        assert state.driver.child_pid == old
        assert await state.driver.health(chip) == 0
        with pytest.raises(DriverNotFound, match="may be written by others"):
            find()
        may_be_loaded = True
        await state.until(lambda: state.driver.child_pid not in (None, old), 10)


async def test_a_missing_library_is_named_once(
    root: Root, caplog: pytest.LogCaptureFixture
) -> None:
    installed = Installed(root.find(), root.find)
    installed.adopt(await installed.find())
    root.remove()
    for _ in range(3):
        assert not await installed.is_replaced()
    assert caplog.text.count("its files are gone") == 1
    with pytest.raises(DriverNotFound):
        await installed.find()
    root.install()
    assert not await installed.is_replaced(), "it may not be complete yet"
    assert await installed.is_replaced()


async def test_the_libraries_beside_it_belong_to_it(root: Root) -> None:
    installed = Installed(root.find(), root.find)
    first = await installed.find()
    beside = root.path.with_name("libdrvdsmi_host.so")
    beside.write_bytes(b"one")
    assert await installed.find() != first
    second = await installed.find()
    os.utime(beside, ns=(1, 1))
    assert await installed.find() != second
