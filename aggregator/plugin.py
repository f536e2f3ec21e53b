"""Interfaces of aggregator plugins: they read documents, are timed, keep state or are published.

A plugin is pure: events and Instants in, values out. The aggregator reads for it, stores the state
that the next leader needs, and writes its views.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from service.clock import Instant
    from stores.base import Selection, WatchEvent


class View(msgspec.Struct, frozen=True):
    """A document in upstream's format that shows a plugin's state; ``data`` of ``None``: it is
    absent.
    """

    namespace: str
    name: str
    data: dict[str, str] | None
    labels: dict[str, str] = {}


@runtime_checkable
class DocumentPlugin(Protocol):
    """A plugin that reads documents."""

    @property
    def inputs(self) -> tuple[Selection, ...]:
        """What is watched for it in every store that is read."""

    def observe(
        self, source: int, selection: Selection, event: WatchEvent, now: Instant, /
    ) -> frozenset[str]:
        """Apply an event of the store with this number; return nodes to be judged again."""


@runtime_checkable
class Timed(Protocol):
    """A plugin for which time alone changes something."""

    def step(self, now: Instant) -> frozenset[str]:
        """Do what is due; return nodes to be judged again."""

    def next_due_ms(self) -> int | None:
        """Return the steady time of the next ``step``; ``None``: none by time alone."""


LAST = "last-"
"""Prefix of a bucket that marks the others as complete: it is written only when no other bucket of
its plugin waits to be written.
"""


@runtime_checkable
class Persistent(Protocol):
    """A plugin whose state must survive a restart and a change of the leader.

    Its state is texts in buckets, small enough each for one document. Times in them are wall times:
    another process has another steady clock. The process may be killed between the writes of two
    buckets (``LAST``).
    """

    @property
    def name(self) -> str:
        """The name in those of its documents: ``mindx-dl/npu-vigil-state-<name>-<bucket>``."""

    def pop_changed(self) -> frozenset[str]:
        """Return the buckets whose text changed since the last call."""

    def text(self, bucket: str) -> str | None:
        """Return the text of a bucket; ``None``: it is empty, its document is deleted."""

    def restore(self, texts: Mapping[str, str], now: Instant) -> Iterable[str]:
        """Restore the state of an earlier leader, by bucket; return problems of what could not be
        read.

        Called before anything is observed, and by a follower each time before it leads.
        """


@runtime_checkable
class Viewed(Protocol):
    """A plugin that shows its state in documents of upstream's format."""

    def views(self) -> tuple[View, ...]:
        """Return the desired views; the daemon writes what differs, at most once a second."""


@runtime_checkable
class Led(Protocol):
    """A plugin that does something only while this process leads, such as a gRPC service."""

    async def set_leading(self, leading: bool) -> None:
        """Begin, after everything is restored, or end what only a leader does; return soon."""


Plugin: TypeAlias = DocumentPlugin | Timed | Persistent | Viewed | Led
"""An aggregator plugin: it has the methods of one or several of these interfaces."""
