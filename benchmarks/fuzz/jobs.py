"""What the job view reads: the state that was kept of relation faults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aggregator.jobs.relation_state import RelationState
from aggregator.jobs.relations import SHIPPED
from contract.errors import VigilError
from service.clock import Instant

if TYPE_CHECKING:
    from collections.abc import Sequence

_NOW = Instant(1_767_225_600_000, 1000)


@dataclass(frozen=True)
class KeptRelations:
    """What a leader keeps: what is taken over can be kept and taken over again."""

    name = "relation-book"
    seeds: Sequence[str] = (
        '{"11111111-1111-4111-8111-111111111111":[[["node-1","Ascend910-0","81078603"],'
        '{"since_ms":1767225600000,"result":"Separate","pods":["uid-0"]}],'
        '[["node-2","1/2","[0x08520003,na,L2,na]"],{"since_ms":1767225500000,"is_closed":true}]]}',
    )

    def feed(self, text: str) -> None:
        """Take ``text`` over."""
        book = RelationState(SHIPPED)
        if problems := book.restore_buckets({"00": text}, _NOW):
            raise VigilError(problems[0])
        kept = {bucket: book.text(bucket) or "{}" for bucket in book.pop_changed()}
        again = RelationState(SHIPPED)
        assert again.restore_buckets(kept, _NOW) == []
        assert {job: again.tracks(job) for job in again.jobs} == {
            job: book.tracks(job) for job in book.jobs
        }
