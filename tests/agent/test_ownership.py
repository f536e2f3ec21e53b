"""Refusing to run beside another writer: who counts as one, and for how long."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from agent.publishing.ownership import owned_by, refuse_beside_others
from contract.errors import ConfigurationError, StoreRefused, StoreUnavailable
from stores.base import Writer
from stores.directory import DirectoryStore

if TYPE_CHECKING:
    from pathlib import Path

    from agent.publishing.ownership import Owned

NOW_MS = 1_800_000_000_000
BOTH = owned_by("n", ["device-info", "node-info"])


class KnowingStore(DirectoryStore):
    """A directory store that knows who wrote what."""

    def __init__(self, root: Path) -> None:
        super().__init__(f"directory:{root}", root)
        self.writers: dict[str, Writer] = {}
        self.errors: list[Exception] = []
        self.progress = 0

    async def writer(self, namespace: str, name: str) -> Writer | None:
        if self.errors:
            raise self.errors.pop(0)
        return self.writers.get(f"{namespace}/{name}")

    async def check(self) -> None:
        await refuse_beside_others(self, BOTH, lambda: NOW_MS, self._mark)

    def _mark(self) -> None:
        self.progress += 1

    def wrote(self, document: Owned, name: str, age_seconds: float) -> None:
        at_ms = NOW_MS - int(age_seconds * 1000)
        self.writers[f"{document.namespace}/{document.name}"] = Writer(name, at_ms)


def test_only_what_is_owned_is_asked_about() -> None:
    assert [owned.kind for owned in BOTH] == ["device-info", "node-info"]
    assert owned_by("n", ["node-info"]) == BOTH[1:]


async def test_nobody_else(tmp_path: Path) -> None:
    store = KnowingStore(tmp_path)
    await store.check()
    for document in BOTH:
        store.wrote(document, "npu-vigil", 1)
    await store.check()


@pytest.mark.parametrize(
    ("document", "name", "age_seconds", "left"),
    [
        (BOTH[0], "device-plugin", 0, "360"),
        (BOTH[0], "device-plugin", 359, "1"),
        (BOTH[0], "device-plugin", -30, "390"),
        (BOTH[1], "noded", 1859, "1"),
        (BOTH[1], "npu-vigil-other", 0, "1860"),
    ],
)
async def test_somebody_at_work_is_named(
    tmp_path: Path, document: Owned, name: str, age_seconds: int, left: str
) -> None:
    store = KnowingStore(tmp_path)
    store.wrote(document, name, age_seconds)
    with pytest.raises(ConfigurationError) as raised:
        await store.check()
    text = str(raised.value)
    assert f"{document.namespace}/{document.name} was written by '{name}'" in text
    assert f"start again in {left} s" in text
    assert f"kubectl delete configmap -n {document.namespace} {document.name}" in text
    assert f"take {document.kind} out of `documents`" in text


async def test_all_are_named_at_once(tmp_path: Path) -> None:
    store = KnowingStore(tmp_path)
    store.wrote(BOTH[0], "device-plugin", 1)
    store.wrote(BOTH[1], "noded", 1)
    with pytest.raises(ConfigurationError) as raised:
        await store.check()
    assert [problem.where for problem in raised.value.problems] == ["device-info", "node-info"]


@pytest.mark.parametrize(("document", "age_seconds"), [(BOTH[0], 360), (BOTH[1], 1860)])
async def test_a_writer_that_has_gone_is_followed(
    tmp_path: Path, document: Owned, age_seconds: int
) -> None:
    store = KnowingStore(tmp_path)
    store.wrote(document, "device-plugin", age_seconds)
    await store.check()


async def test_a_store_that_is_away_is_waited_for(tmp_path: Path) -> None:
    store = KnowingStore(tmp_path)
    store.wrote(BOTH[0], "device-plugin", 1)
    store.errors = [StoreUnavailable("away"), TimeoutError()]
    begin = time.monotonic()
    with pytest.raises(ConfigurationError):
        await store.check()
    assert time.monotonic() - begin > 0.2
    assert store.progress == 4


async def test_a_store_that_may_not_be_asked_stops_nobody(tmp_path: Path) -> None:
    store = KnowingStore(tmp_path)
    store.errors = [StoreRefused("no right"), StoreRefused("no right")]
    await store.check()
