"""The fault configuration from a real store and real files, and the reports about it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING

import pytest

from agent.fault_configuration import watch
from agent.fault_configuration.files import (
    COPY_NAME,
    Files,
    read_files,
    read_stored,
    store_in_force,
)
from agent.fault_configuration.watch import FaultConfiguration, FaultConfigurationCallbacks
from contract.codes.catalogue import shipped
from contract.errors import StoreRefused
from contract.operator_rules.fault_configuration import (
    CHIP_CONFIG_MAP,
    DOCUMENTS,
    NODE_CONFIG_MAP,
    ConfigurationPlace,
    FaultTexts,
    InForce,
    Judged,
)
from stores.base import Document
from stores.directory.store import DirectoryStore
from stores.interruption import Interrupted
from tests.parts.deadlines import (
    patience,
    stand_in_takes,
    stand_in_waits,
    stays,
    time_passes,
    until,
)
from tests.parts.tasks import beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from contract.codes.catalogue import Catalogue
    from contract.operator_rules.fault_configuration import OperatorConfigMap
    from stores.base import KubernetesEvent, Selection, Store, WatchEvent

CHIPS = CHIP_CONFIG_MAP.documents
CODES, RULES, SWITCHES, NODE_CODES = DOCUMENTS
CODE = "80E21007"
NAMESPACE, NAME = "kube-system", "mindx-dl-fault-config"


NODE_CODE = "7F0000A1"


def node_table(level: str) -> str:
    """Return a level table that has one code of the server's parts."""
    return json.dumps({"FaultTypeCode": {f"{level}Codes": [NODE_CODE]}})


def table(level: str) -> str:
    """Return a level table that has one code of a chip."""
    return json.dumps({f"{level}Codes": [CODE], "NotHandleFaultCodes": ["81078603"]})


class Follower:
    """A fault configuration that is followed, and what it did."""

    def __init__(
        self, tmp_path: Path, store: Store | None = None, texts: FaultTexts | None = None
    ) -> None:
        self.store = store or DirectoryStore("directory:x", tmp_path / "store")
        self.state_dir = tmp_path / "state"
        self.state_dir.mkdir(exist_ok=True)
        self.directory = tmp_path / "files"
        self.levels: list[str] = []
        self.posted: list[KubernetesEvent] = []
        self.followed = FaultConfiguration(
            self.store,
            self.directory,
            self.state_dir,
            texts or FaultTexts(),
            FaultConfigurationCallbacks(
                self._configure, self.posted.append, lambda: 1_800_000_000_000
            ),
        )

    def _configure(self, _: FaultTexts, tables: Catalogue) -> None:
        level = tables.level_of(CODE, None).value
        if self.levels[-1:] != [level]:
            self.levels.append(level)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.followed.put_cached_in_force()
        async with beside(self.followed.run()):
            yield

    async def put(self, **data: str) -> None:
        keys = dict(
            zip(("codes", "rules", "switches", "poll"), (*CHIPS, "PollInterval"), strict=True)
        )
        await self.store.put(
            Document(NAMESPACE, NAME, {keys[name]: text for name, text in data.items()})
        )

    async def until(self, level: str) -> None:
        async with asyncio.timeout(patience(5)):
            await _until(lambda: self.levels[-1:] == [level])

    async def until_kept(self) -> None:
        """Wait until the next start finds what is in force: both ConfigMaps are known by then."""
        async with asyncio.timeout(patience(5)):
            await _until(lambda: read_stored(self.state_dir) == self.followed.judged.in_force)

    async def until_problems(self, *documents: str) -> None:
        async with asyncio.timeout(patience(5)):
            await _until(
                lambda: {p.document for p in self.followed.judged.problems} == set(documents)
            )


async def _until(happened: Callable[[], bool]) -> None:
    await until(happened)


class Silent:
    """A store that does not answer, or refuses."""

    def __init__(self, *, refuses: bool = False) -> None:
        self._refuses = refuses

    async def watch(self, _: Selection) -> AsyncIterator[WatchEvent]:
        if self._refuses:
            raise StoreRefused("no right to watch")
        yield Interrupted("connection refused")
        await asyncio.Event().wait()


class OneLate(DirectoryStore):
    """A store that lists one ConfigMap, ``late``, a moment after the other."""

    def __init__(self, root: Path, late: OperatorConfigMap = CHIP_CONFIG_MAP) -> None:
        super().__init__("directory:x", root)
        self._late = late

    async def watch(self, selection: Selection) -> AsyncIterator[WatchEvent]:
        if selection.name == self._late.name:
            await stand_in_waits(0.3)
        async for event in super().watch(selection):
            yield event


class OneSilent(DirectoryStore):
    """A store that does not answer about one ConfigMap, and then refuses it."""

    def __init__(self, root: Path) -> None:
        super().__init__("directory:x", root)
        self.speaks = asyncio.Event()

    async def watch(self, selection: Selection) -> AsyncIterator[WatchEvent]:
        if selection.name == NODE_CONFIG_MAP.name:
            await self.speaks.wait()
            yield Interrupted("forbidden")
            await asyncio.Event().wait()
        async for event in super().watch(selection):
            yield event


async def test_the_config_map_is_followed(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    async with follower.running():
        assert follower.levels == ["NotHandleFault"]
        await follower.put(codes=table("SeparateNPU"))
        await follower.until("SeparateNPU")
        await follower.put(codes=table("RestartNPU"), poll="30")
        await follower.until("RestartNPU")
        await follower.put(codes="{")
        await follower.until_problems(CODES)
        assert follower.levels[-1] == "RestartNPU"
        await follower.put(codes=table("SubHealthFault"))
        await follower.until("SubHealthFault")
        await follower.store.delete(NAMESPACE, NAME)
        await follower.until("NotHandleFault")
    assert follower.followed.judged.problems == ()


async def test_the_config_map_of_the_server_is_followed_too(tmp_path: Path) -> None:
    """A change of one ConfigMap changes nothing of what is from the other."""
    follower = Follower(tmp_path)
    there = NODE_CONFIG_MAP.namespace, NODE_CONFIG_MAP.name

    async def put(data: dict[str, str]) -> None:
        await follower.store.put(Document(*there, data))

    def levels() -> object:
        return follower.followed.judged.catalogue.node_levels

    async with follower.running(), asyncio.timeout(patience(10)):
        await follower.put(codes=table("SeparateNPU"))
        await put({NODE_CODES: node_table("SeparateFault")})
        await _until(lambda: levels() == {NODE_CODE: "SeparateFault"})
        await follower.until("SeparateNPU")
        await put({NODE_CODES: '{"FaultTypeCode":{"SeparateFaultCodes":["1","2"]}}'})
        await follower.until_problems(NODE_CODES)
        assert levels() == {NODE_CODE: "SeparateFault"}
        await follower.put(codes=table("RestartNPU"), poll="soon")
        await follower.until_problems(NODE_CODES, "PollInterval")
        await follower.store.delete(*there)
        await follower.until_problems("PollInterval")
        assert levels() == shipped().node_levels
        assert follower.levels[-1] == "RestartNPU"
    involved = [(event.involved.namespace, event.involved.name) for event in follower.posted]
    assert involved == [there, (NAMESPACE, NAME)]
    assert [event.namespace for event in follower.posted] == [there[0], NAMESPACE]
    assert follower.posted[0].message.startswith("2 problems: NodeDConfiguration.json: $.")
    assert follower.posted[1].message.startswith("1 problem: PollInterval: ")


async def test_the_first_start_waits_for_both_config_maps(tmp_path: Path) -> None:
    """One of them may be out of reach: what that could have is as it was."""
    follower = Follower(tmp_path, OneSilent(tmp_path / "store"))
    await follower.put(codes=table("SeparateNPU"))
    async with follower.running():
        await follower.until("SeparateNPU")
        assert read_stored(follower.state_dir) is None, "the other one is not known yet"
        waiting = asyncio.create_task(follower.followed.known())
        await stays(0.1, because="the ConfigMap that has come is judged at once")
        assert not waiting.done()
        assert isinstance(follower.store, OneSilent)
        follower.store.speaks.set()
        await asyncio.wait_for(waiting, patience(5))
        assert follower.followed.trouble == "forbidden"
        await follower.put(codes=table("RestartNPU"))
        await follower.until("RestartNPU")
        assert read_stored(follower.state_dir) is not None


either_late = pytest.mark.parametrize("late", [CHIP_CONFIG_MAP, NODE_CONFIG_MAP])


@pytest.mark.slow
@either_late
async def test_configuration_in_force_is_stored_for_a_start_without_a_store(
    tmp_path: Path, late: OperatorConfigMap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_FIRST_ANSWER_SECONDS", patience(1))
    first = Follower(tmp_path, OneLate(tmp_path / "store", late))
    async with first.running():
        await first.put(codes=table("SeparateNPU"))
        await first.until("SeparateNPU")
        await first.until_kept()
    second = Follower(tmp_path, Silent())  # type: ignore[arg-type]
    async with second.running():
        async with asyncio.timeout(patience(0.2)):
            await second.followed.known()
        assert second.levels == ["SeparateNPU"]
        assert second.followed.judged.kept == {CODES}
        await until(lambda: second.followed.trouble == "connection refused")
    third = Follower(tmp_path)
    async with third.running():
        assert third.levels == ["SeparateNPU"], "before the store says anything"
        await third.store.delete(NAMESPACE, NAME)
        await third.until("NotHandleFault")
    fourth = Follower(tmp_path, Silent())  # type: ignore[arg-type]
    async with fourth.running():
        assert fourth.levels == ["NotHandleFault"], "what was deleted does not come back"


@pytest.mark.slow
@either_late
async def test_malformed_at_a_start_keeps_what_was_in_force(
    tmp_path: Path, late: OperatorConfigMap
) -> None:
    first = Follower(tmp_path, OneLate(tmp_path / "store", late))
    async with first.running():
        await first.put(codes=table("SeparateNPU"))
        await first.until("SeparateNPU")
        await first.until_kept()
    await first.put(codes='{"SeparateNPUCodes": [80E21007]}')
    second = Follower(tmp_path)
    async with second.running():
        await second.until_problems(CODES)
        assert second.levels == ["SeparateNPU"]


async def test_without_the_kept_file_the_journal_remembers(tmp_path: Path) -> None:
    texts = FaultTexts(fault_code=table("SeparateNPU"))
    follower = Follower(tmp_path, Silent(), texts)  # type: ignore[arg-type]
    async with follower.running():
        assert follower.levels == ["SeparateNPU"]
    (tmp_path / "state" / COPY_NAME).write_text('{"texts": {"fault_code": "{"}}')
    assert Follower(tmp_path, Silent(), texts).levels == []  # type: ignore[arg-type]


async def test_the_first_start_waits_for_the_store_but_not_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_FIRST_ANSWER_SECONDS", patience(1))
    (tmp_path / "a").mkdir()
    quick = Follower(tmp_path / "a")
    await quick.put(codes=table("SeparateNPU"))
    async with quick.running():
        await quick.followed.known()
        assert quick.levels[-1] == "SeparateNPU"
    (tmp_path / "b").mkdir()
    refused = Follower(tmp_path / "b", Silent(refuses=True))  # type: ignore[arg-type]
    async with refused.running():
        async with asyncio.timeout(patience(0.5)):
            await refused.followed.known()
        assert refused.followed.trouble == "no right to watch"


@pytest.mark.slow
async def test_collectors_wait_until_both_config_maps_are_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two ConfigMaps that come at once are judged one after the other, each in its time."""
    follower = Follower(tmp_path, OneLate(tmp_path / "store"))
    judge = follower.followed._judge

    def slowly(before: InForce) -> Judged:
        judged = judge(before)
        stand_in_takes(0.2)
        return judged

    monkeypatch.setattr(follower.followed, "_judge", slowly)
    monkeypatch.setattr(watch, "_FIRST_ANSWER_SECONDS", patience(2))
    await follower.put(codes=table("SeparateNPU"))
    async with follower.running():
        await follower.followed.known()
        assert follower.levels[-1] == "SeparateNPU"


async def test_files_are_followed(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    file = follower.directory / CODES
    async with follower.running():
        await time_passes(0.05)
        follower.directory.mkdir()
        file.write_text(table("SeparateNPU"))
        await follower.until("SeparateNPU")
        beside = follower.directory / "new"
        beside.write_text(table("RestartNPU"))
        beside.replace(file)
        await follower.until("RestartNPU")
        await follower.put(codes=table("SubHealthFault"))
        await follower.until("SubHealthFault")
        file.write_text("{")
        await stays(0.05, because="a change of a file is followed at once")
        assert follower.followed.judged.problems == (), "nobody needs the file now"
        await follower.store.delete(NAMESPACE, NAME)
        await follower.until_problems(CODES)
        assert follower.levels[-1] == "SubHealthFault", "a malformed file changes nothing"
        file.unlink()
        await follower.until("NotHandleFault")
        file.write_text(table("SeparateNPU"))
        await follower.until("SeparateNPU")
        follower.directory.rename(tmp_path / "away")
        await follower.until("NotHandleFault")
        (tmp_path / "away").rename(follower.directory)
        await follower.until("SeparateNPU")


async def test_a_mounted_config_map(tmp_path: Path) -> None:
    """As the kubelet writes one: data in a directory of its own, behind a link that is replaced."""
    mounted = tmp_path / "files"
    mounted.mkdir()

    def publish(number: int, level: str) -> None:
        data = mounted / f"..data-{number}"
        data.mkdir()
        (data / CODES).write_text(table(level))
        link = mounted / "..data_tmp"
        link.symlink_to(data.name)
        link.replace(mounted / "..data")

    publish(1, "SeparateNPU")
    (mounted / CODES).symlink_to(f"..data/{CODES}")
    follower = Follower(tmp_path)
    async with follower.running():
        assert follower.levels == ["SeparateNPU"]
        await time_passes(0.05)
        publish(2, "RestartNPU")
        await follower.until("RestartNPU")
        publish(3, "SubHealthFault")
        await follower.until("SubHealthFault")
        (mounted / CODES).unlink()
        await follower.until("NotHandleFault")
        (mounted / CODES).symlink_to(f"..data/{CODES}")
        await follower.until("SubHealthFault")


async def test_a_link_to_a_file_elsewhere(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "table").write_text(table("SeparateNPU"))
    follower = Follower(tmp_path)
    follower.directory.mkdir()
    (follower.directory / CODES).symlink_to(elsewhere / "table")
    async with follower.running():
        await time_passes(0.05)
        (elsewhere / "table").write_text(table("RestartNPU"))
        await follower.until("RestartNPU")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert read_files(tmp_path / "none") == Files()
    (tmp_path / CODES).mkdir()
    (tmp_path / RULES).symlink_to(RULES)
    (tmp_path / SWITCHES).write_bytes(b"\xff")
    found = read_files(tmp_path)
    assert found.unreadable.keys() == {CODES, RULES}
    assert found.texts == {SWITCHES: "\ufffd"}
    with (tmp_path / SWITCHES).open("wb") as file:
        file.truncate(11 << 20)
    assert "longer than 10 MiB" in read_files(tmp_path).unreadable[SWITCHES]
    assert read_files(tmp_path / SWITCHES).unreadable[CODES] == "Not a directory"


def test_stored_configuration_is_read_back(tmp_path: Path) -> None:
    assert read_stored(tmp_path) is None
    in_force = InForce(FaultTexts(fault_code="{}"), {CODES: ConfigurationPlace.CONFIG_MAP})
    store_in_force(tmp_path, in_force)
    assert read_stored(tmp_path) == in_force
    assert [path.name for path in tmp_path.iterdir()] == [COPY_NAME]
    for broken in (b"", b"{", b"[]", b"\xff", b'{"texts":{"fault_code":"{"}}'):
        (tmp_path / COPY_NAME).write_bytes(broken)
        assert read_stored(tmp_path) is None


async def test_a_disk_that_takes_nothing_does_not_keep_a_change_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    follower = Follower(tmp_path)
    follower.state_dir.rmdir()
    async with follower.running():
        await follower.put(codes=table("SeparateNPU"))
        await follower.until("SeparateNPU")
        await follower.put(codes=table("RestartNPU"))
        await follower.until("RestartNPU")
    assert sum("cannot be kept on disk" in record.message for record in caplog.records) == 1


async def test_problems_are_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    follower = Follower(tmp_path)
    odd = json.dumps({"SeparateNPUCodes": ["zz", CODE], "NotHandleFaultCodes": ["81078603"]})
    async with follower.running():
        await follower.put(codes=odd)
        await follower.until("SeparateNPU")
        await follower.put(codes=odd, poll="30")
        await follower.put(codes=odd, poll="soon")
        await follower.until_problems(CODES, "PollInterval")
        await follower.put(codes=table("RestartNPU"))
        await follower.until("RestartNPU")
    warned = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(warned) == 2
    assert "faultCode.json (ConfigMap): $.SeparateNPUCodes[0]: 'zz'" in warned[0]
    assert "PollInterval (ConfigMap)" in warned[1]
    assert "nothing is wrong with it any more" in caplog.messages[-1]
    first, second = follower.posted
    assert (first.namespace, first.involved.kind, first.involved.name) == (
        NAMESPACE,
        "ConfigMap",
        NAME,
    )
    assert not first.normal
    assert first.message.startswith("1 problem: faultCode.json: $.SeparateNPUCodes[0]")
    assert second.message.startswith("2 problems: ")
    assert first.name != second.name


async def test_all_nodes_report_a_problem_with_one_event(tmp_path: Path) -> None:
    names = set()
    store = DirectoryStore("directory:x", tmp_path / "store")
    await store.put(Document(NAMESPACE, NAME, {CODES: "{"}))
    for number in (1, 2):
        (tmp_path / str(number)).mkdir()
        follower = Follower(tmp_path / str(number), store)
        async with follower.running():
            await follower.until_problems(CODES)
        (event,) = follower.posted
        names.add(event.name)
    assert len(names) == 1


async def test_many_problems_do_not_flood_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    follower = Follower(tmp_path)
    entries = [f"z{number}" for number in range(2000)]
    async with follower.running():
        await follower.put(codes=json.dumps({"SeparateNPUCodes": entries}))
        await follower.until_problems(CODES)
        await stays(0.05, because="each problem would be logged at once")
    assert len(caplog.records) == 51
    assert "has 2001 problems" in caplog.messages[0]
    assert "vigil validate" in caplog.messages[-1]
    assert len(follower.posted[0].message.encode()) <= 1024
