"""The collector of storage faults, in virtual time (``docs/spec/noded.md#4.3``, 4.4; D-11)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING

import pytest

from collectors.storage.collector import StorageCollector, StorageSection
from contract.observation import storage_subject
from tests.collectors.scripted import RecordedReports, ScriptedDriver, virtual_ms
from tests.parts.collector_context import SavedInMemory, collector_context
from tests.parts.deadlines import patience, stand_in_waits, until
from tests.parts.tasks import beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from contract.observation import Subject

PROCESS, MEMORY, DTFS_PROCESS, LINK = "110001020", "110001021", "110001022", "110001023"
DPC = storage_subject("DPC")

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


def dpc(*instances: str) -> str:
    """Return the text of a status file with these instances.

    ``0 -1`` is an instance with internal error 0 and process error -1; the first has index 0.
    """
    return "".join(
        "[instidx={}]\nDPC_INTERNAL_ERROR: {}\nDPC_PROCESS_ERROR: {}\n".format(
            number, *instance.split()
        )
        for number, instance in enumerate(instances)
    )


def dtfs(process: int, link: int) -> str:
    return f"[instidx=0]\nDTFS_PROCESS_ERROR: {process}\nDTFS_LINK_ERROR: {link}\n"


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace threads by direct calls, which take no virtual time."""

    async def at_once(function: Callable[[], bytes]) -> bytes:
        return function()

    monkeypatch.setattr("asyncio.to_thread", at_once)


class Host:
    """Two files that a test writes, and the collector's memory, which outlives the collector."""

    def __init__(self, **files: str) -> None:
        self.files = files
        self.memory = SavedInMemory()

    def read(self, path: Path, *, any_owner: bool) -> bytes:
        if path.name not in self.files:
            raise FileNotFoundError(2, "No such file or directory")
        return self.files[path.name].encode()

    @contextlib.asynccontextmanager
    async def collected(
        self,
        tmp_path: Path,
        tracked: Mapping[tuple[Subject, str], int] | None = None,
        dpc_file: str | None = None,
    ) -> AsyncIterator[RecordedReports]:
        """Run a collector on this host; yield its reports."""
        recorded = RecordedReports()
        for name in self.files:  # whether there is a file is asked of the file system
            (tmp_path / name).touch()
        settings = StorageSection(
            dpc_file=str(tmp_path / "dpc") if dpc_file is None else dpc_file,
            dtfs_file=str(tmp_path / "dtfs"),
        )
        around = collector_context(
            recorded, virtual_ms, ScriptedDriver(), tracked=tracked, saved_state=self.memory
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("collectors.storage.collector.read_checked", self.read)
            async with beside(StorageCollector(settings, around).run()):
                await asyncio.sleep(0.1)
                yield recorded


async def test_nothing_is_logged_of_what_was_never_there(tmp_path: Path) -> None:
    async with Host().collected(tmp_path) as recorded:
        await asyncio.sleep(60)
    assert recorded.words() == []


async def test_a_process_error_comes_and_goes(tmp_path: Path) -> None:
    host = Host(dpc=dpc("0 0", "0 0"))
    async with host.collected(tmp_path) as recorded:
        host.files["dpc"] = dpc("0 0", "0 -1")
        await asyncio.sleep(5)
        host.files["dpc"] = dpc("0 -1", "0 0")
        await asyncio.sleep(5)
        host.files["dpc"] = dpc("0 0", "0 0")
        await asyncio.sleep(5)
    assert recorded.words() == [
        "storage 0 DPC answered",
        f"storage 0 DPC present {PROCESS}",
        f"storage 0 DPC absent {PROCESS}",
    ]
    assert [round(at) for at, _ in recorded.batches] == [0, 5, 15]


async def test_errors_of_dtfs_are_reported_at_once(tmp_path: Path) -> None:
    host = Host(dtfs=dtfs(-1, -1))
    async with host.collected(tmp_path) as recorded:
        host.files["dtfs"] = dtfs(0, -1)
        await asyncio.sleep(5)
        host.files["dtfs"] = ""
        await asyncio.sleep(5)
        host.files["dtfs"] = dtfs(0, 0)
        await asyncio.sleep(5)
    assert recorded.words() == [
        "storage 0 DTFS answered",
        f"storage 0 DTFS present {DTFS_PROCESS}",
        f"storage 0 DTFS present {LINK}",
        f"storage 0 DTFS absent {DTFS_PROCESS}",
        f"storage 0 DTFS blind: {tmp_path}/dtfs: there is no instance in it",
        "storage 0 DTFS answered",
        f"storage 0 DTFS absent {LINK}",
    ]


@pytest.mark.slow
async def test_a_memory_error_counts_after_ten_minutes_either_way(tmp_path: Path) -> None:
    """noded#P3."""
    host = Host(dpc=dpc("0 0"))
    async with host.collected(tmp_path) as recorded:
        host.files["dpc"] = dpc("-12 0")  # seen after 5 s
        await asyncio.sleep(300)
        host.files["dpc"] = dpc("0 0")  # a pause begins it anew
        await asyncio.sleep(5)
        host.files["dpc"] = dpc("-12 0")  # seen after 310 s
        await asyncio.sleep(595)
        assert len(recorded.words()) == 1
        await asyncio.sleep(95)
        host.files["dpc"] = dpc("0 0")  # seen after 1000 s
        await asyncio.sleep(620)
    assert recorded.words()[1:] == [
        f"storage 0 DPC present {MEMORY}",
        f"storage 0 DPC absent {MEMORY}",
    ]
    assert [round(at) for at, _ in recorded.batches[1:]] == [910, 1600]


async def test_a_late_check_at_the_begin_costs_none_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[float] = []

    async def read(function: Callable[[], bytes]) -> bytes:
        checked.append(asyncio.get_running_loop().time())
        # The second check is the first that reads the error.
        await stand_in_waits(0.3 if len(checked) == 2 else 0)
        return function()

    monkeypatch.setattr("asyncio.to_thread", read)
    host = Host(dpc=dpc("0 0"))
    async with host.collected(tmp_path) as recorded:
        host.files["dpc"] = dpc("-12 0")
        await asyncio.sleep(620)
    assert recorded.words()[1:] == [f"storage 0 DPC present {MEMORY}"]
    assert recorded.batches[1][0] - checked[1] == pytest.approx(600, abs=0.1)


async def test_the_ten_minutes_go_on_over_a_restart(tmp_path: Path) -> None:
    host = Host(dpc=dpc("-12 0"))
    async with host.collected(tmp_path):
        await asyncio.sleep(400)
    async with host.collected(tmp_path) as recorded:
        await asyncio.sleep(250)
    assert recorded.words() == ["storage 0 DPC answered", f"storage 0 DPC present {MEMORY}"]
    assert recorded.batches[-1][0] == pytest.approx(600, abs=6)
    host.files["dpc"] = dpc("0 0")
    for seconds, ended in (300, 0), (295, 0), (15, 1):
        async with host.collected(tmp_path, {(DPC, MEMORY): 0}) as recorded:
            await asyncio.sleep(seconds)
        assert recorded.words()[1:] == [f"storage 0 DPC absent {MEMORY}"] * ended


async def test_a_flag_that_another_process_finds_changed_begins_anew(tmp_path: Path) -> None:
    host = Host(dpc=dpc("-12 0"))
    async with host.collected(tmp_path):
        await asyncio.sleep(400)
    host.files["dpc"] = dpc("0 0")
    async with host.collected(tmp_path) as recorded:
        host.files["dpc"] = dpc("-12 0")
        await asyncio.sleep(595)
    assert recorded.words() == ["storage 0 DPC answered"]


@pytest.mark.parametrize("after", ["", "junk", dpc("0 -1")[:-5], None])
async def test_a_file_without_content_ends_nothing(tmp_path: Path, after: str | None) -> None:
    host = Host(dpc=dpc("0 -1"))
    async with host.collected(tmp_path) as recorded:
        if after is None:
            del host.files["dpc"]
        else:
            host.files["dpc"] = after
        await asyncio.sleep(30)
        host.files["dpc"] = dpc("0 -1")
        await asyncio.sleep(5)
    kinds = [word.split(":")[0].removeprefix("storage 0 DPC ") for word in recorded.words()]
    assert kinds == ["answered", f"present {PROCESS}", "blind", "answered"]


async def test_an_instance_at_fault_that_vanishes_is_waited_for(tmp_path: Path) -> None:
    host = Host(dpc=dpc("0 0", "0 -1"))
    async with host.collected(tmp_path) as recorded:
        host.files["dpc"] = dpc("0 0")
        await asyncio.sleep(30)
    async with host.collected(tmp_path, {(DPC, PROCESS): 0}) as later:
        await asyncio.sleep(30)
        host.files["dpc"] = dpc("0 0", "0 0")
        await asyncio.sleep(5)
    gone = "storage 0 DPC blind: instances at fault are not listed any more: 1; "
    assert [word.startswith(gone) for word in recorded.words()[2:]] == [True]
    assert recorded.words()[-1].endswith('start this agent once with storage.dpc_file = ""')
    assert later.words() == [
        recorded.words()[-1],
        "storage 0 DPC answered",
        f"storage 0 DPC absent {PROCESS}",
    ]


async def test_a_client_without_a_file_ends_its_reported_faults(tmp_path: Path) -> None:
    """What an operator can do about an instance that will never be listed again."""
    host = Host(dpc=dpc("0 0", "0 -1"), dtfs=dtfs(0, 0))
    tracked = {(DPC, PROCESS): 0}
    async with host.collected(tmp_path):
        pass
    host.files["dpc"] = dpc("0 0")
    async with host.collected(tmp_path, tracked, dpc_file="") as recorded:
        await asyncio.sleep(10)
    assert recorded.words() == [
        "storage 0 DPC answered",
        f"storage 0 DPC absent {PROCESS}",
        "storage 0 DTFS answered",
    ]
    async with host.collected(tmp_path) as recorded:
        await asyncio.sleep(10)
    assert recorded.words() == ["storage 0 DPC answered", "storage 0 DTFS answered"]


async def test_one_without_a_fault_may_go(tmp_path: Path) -> None:
    host = Host(dpc=dpc("0 -1", "0 0"))
    async with host.collected(tmp_path) as recorded:
        host.files["dpc"] = dpc("0 0")
        await asyncio.sleep(5)
        host.files["dpc"] = ""
        await asyncio.sleep(5)
    assert recorded.words()[2:] == [f"storage 0 DPC absent {PROCESS}"]


async def test_another_boot_has_other_instances(tmp_path: Path) -> None:
    host = Host(dpc=dpc("0 0", "0 -1"))
    async with host.collected(tmp_path):
        pass
    assert host.memory.content is not None
    boot = host.memory.content.split(b'"')[3]
    host.memory.content = host.memory.content.replace(boot, b"another")
    host.files["dpc"] = dpc("0 0")
    async with host.collected(tmp_path, {(DPC, PROCESS): 0}) as recorded:
        await asyncio.sleep(5)
    assert recorded.words() == ["storage 0 DPC answered", f"storage 0 DPC absent {PROCESS}"]


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b'{"clients":{"DPC":{"0":[]}}}'])
async def test_a_memory_that_makes_no_sense_is_none(tmp_path: Path, content: bytes) -> None:
    host = Host(dpc=dpc("0 -1"))
    host.memory.content = content
    async with host.collected(tmp_path, {(DPC, PROCESS): 0}) as recorded:
        await asyncio.sleep(5)
    assert recorded.words() == ["storage 0 DPC answered"]


async def test_a_file_that_was_once_there_is_missed(tmp_path: Path) -> None:
    host = Host(dpc=dpc("0 0"))
    async with host.collected(tmp_path):
        pass
    (tmp_path / "dpc").unlink()
    host.files.clear()
    async with host.collected(tmp_path) as recorded:
        await asyncio.sleep(30)
    assert recorded.words() == [f"storage 0 DPC blind: {tmp_path}/dpc: No such file or directory"]


@pytest.mark.slow
@pytest.mark.looptime(False)
async def test_a_file_that_hangs_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # real threads
    for name, text in ("dpc", dpc("0 -1")), ("dtfs", dtfs(-1, 0)):
        (tmp_path / name).write_text(text)
    released = threading.Event()

    def read(path: Path, *, any_owner: bool) -> bytes:
        if path.name == "dpc":
            released.wait()
        return path.read_bytes()

    monkeypatch.setattr("collectors.storage.collector.read_checked", read)
    recorded = RecordedReports()
    settings = StorageSection(
        period_seconds=0.1, dpc_file=str(tmp_path / "dpc"), dtfs_file=str(tmp_path / "dtfs")
    )
    around = collector_context(recorded, virtual_ms, ScriptedDriver())
    collector = StorageCollector(settings, around)
    collector.deadline_seconds = patience(0.2)
    async with beside(collector.run()):
        await until(lambda: len(recorded.words()) >= 3)
        released.set()
        await until(lambda: len(recorded.words()) >= 5)
    assert [word.removeprefix("storage 0 ") for word in recorded.words()] == [
        "DTFS answered",
        f"DTFS present {DTFS_PROCESS}",
        f"DPC blind: {tmp_path}/dpc: no answer within {patience(0.2):g} s",
        "DPC answered",
        f"DPC present {PROCESS}",
    ]
