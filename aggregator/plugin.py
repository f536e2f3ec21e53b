"""The interfaces by which parts of the aggregator read, remember and write documents of their own.

A part is pure: events and moments in, values out. The daemon reads for it, keeps what it must not
forget in the store, so that the next leader finds it, and writes its views.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from service.clock import Instant
    from stores.base import Selection, WatchEvent


class View(msgspec.Struct, frozen=True):
    """A document of upstream's that shows a part's state; ``data`` of ``None``: there is none."""

    namespace: str
    name: str
    data: dict[str, str] | None
    labels: dict[str, str] = {}


@runtime_checkable
class DocumentPlugin(Protocol):
    """A part that reads documents."""

    @property
    def inputs(self) -> tuple[Selection, ...]:
        """What is watched for it in every store that is read."""

    def observe(
        self, source: int, selection: Selection, event: WatchEvent, now: Instant, /
    ) -> frozenset[str]:
        """Take in an event of the store with this number; returns nodes to be judged again."""


@runtime_checkable
class Timed(Protocol):
    """A part for which time alone changes something."""

    def step(self, now: Instant) -> frozenset[str]:
        """Do what is due; returns nodes to be judged again."""

    def next_due_ms(self) -> int | None:
        """Steady time at which ``step`` wants to be called; ``None``: not by time alone."""


LAST = "last-"
"""A bucket whose name begins so says that what the others say is whole: it is written only when
none of its part's other buckets waits to be written."""


@runtime_checkable
class Persistent(Protocol):
    """A part whose state must survive a restart and a change of the leader.

    Its state is texts in buckets, small enough each for one document. Times in them are wall
    times: another process has another steady clock. An end by force may come between two of them
    (``LAST``).
    """

    @property
    def name(self) -> str:
        """Names its documents: ``mindx-dl/npu-vigil-state-<name>-<bucket>``."""

    def take_changed(self) -> frozenset[str]:
        """The buckets whose text changed since this was asked last."""

    def text(self, bucket: str) -> str | None:
        """What a bucket holds now; ``None``: nothing, its document goes."""

    def restore(self, texts: Mapping[str, str], now: Instant) -> Iterable[str]:
        """Take over what an earlier leader kept, by bucket; returns what could not be read.

        Called before anything is observed, and by a follower each time before it leads.
        """


@runtime_checkable
class Viewed(Protocol):
    """A part that shows its state in documents of upstream's."""

    def views(self) -> tuple[View, ...]:
        """What is to be in the store now; the daemon writes what differs, at most once a second."""


@runtime_checkable
class Led(Protocol):
    """A part that does something only while this process leads, such as a service for others."""

    async def leads(self, leading: bool) -> None:
        """We begin to lead, everything is restored; or we do not lead any more. Soon done."""


Part: TypeAlias = DocumentPlugin | Timed | Persistent | Viewed | Led
"""What a part is, it says by the methods it has: any of these, and any number of them."""
