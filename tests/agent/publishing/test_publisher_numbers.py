"""The number of a document's last acknowledged write, which goes with the heartbeat."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from agent.publishing.ownership import OtherProgram
from contract.documents.write_numbers import decode_owned, decode_writes
from contract.errors import StoreUnavailable
from stores.base import LastWriter
from tests.agent.lives import now_ms, upgraded_life
from tests.agent.policy.builders import answered
from tests.agent.publishing.published import running
from tests.parts.deadlines import until

if TYPE_CHECKING:
    from pathlib import Path


async def test_it_is_in_the_document_and_grows_over_deletions_and_restarts(tmp_path: Path) -> None:
    seen: list[int] = []
    for life_number in range(2):
        async with running(tmp_path) as bench:
            assert not bench.publisher.number
            for content in (f"a{life_number}", "", f"b{life_number}"):
                bench.render(content)
                if content:
                    await bench.shows(content)
                    stamp = int((await bench.stored())["stamp"])
                    await until(lambda stamp=stamp: bench.publisher.number == stamp, "its number")  # type: ignore[misc]
                else:
                    await until(lambda: (bench.publisher.number or 0) < 0, "it is negative")
                assert bench.publisher.number is not None
                seen.append(abs(bench.publisher.number))
    assert seen == sorted(seen)
    assert len(set(seen)) >= len(seen) - 2, "only what follows a deletion may have its number"


async def test_a_write_that_is_not_acknowledged_has_no_number(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        await bench.shows("healthy")
        await until(lambda: bench.publisher.number is not None, "its number")
        number = bench.publisher.number
        bench.store.error = StoreUnavailable("down")
        bench.render("ill")
        await until(lambda: bench.record.trouble is not None, "it fails")
        assert bench.publisher.number == number


async def test_a_conflict_has_none(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        await bench.shows("healthy")
        for count in range(1, 5):
            await bench.writes_foreign(f"foreign {count}", int(time.time()) + count)
            await bench.noticed(count)
        await until(lambda: bench.record.conflict_since_ms is not None, "a conflict")
        assert bench.publisher.number is None


async def test_the_text_names_what_is_published_here(tmp_path: Path) -> None:
    async with upgraded_life(tmp_path, 0) as (this, _):
        owned = frozenset({"device-info"})
        assert decode_owned(this.documents.writes()) == owned, "before anything is written"
        assert decode_writes(this.documents.writes()) == {}
        await this.documents.wait_until_read()
        this.fault_state.apply_inputs(answered(0, 1, at=now_ms()))
        record = this.documents.records["device-info"]
        await until(lambda: record.acknowledged_stamp is not None, "the first write")
        stamp = record.acknowledged_stamp
        assert decode_writes(this.documents.writes()) == {"device-info": stamp}
        ownership = this.documents.ownership["device-info"]
        writer = LastWriter("device-plugin", now_ms())
        ownership._leave_to(OtherProgram(ownership._owned, writer, 360))
        assert decode_writes(this.documents.writes()) == {}
        assert decode_owned(this.documents.writes()) == owned
