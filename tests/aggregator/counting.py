"""A part of the tests: it reads, keeps and shows.

``python -m tests.aggregator.counting aggregator`` is ``vigil aggregator`` with it.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

from aggregator.plugin import View
from stores.base import Changed, Deleted, Document, DocumentsListed, Selection, WatchEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from service.clock import Instant

SYSTEM = "cluster-system"
INPUT = Selection(namespace=SYSTEM, label=("count", "me"))
VIEW = Selection(namespace=SYSTEM, name="total")


class Counter:
    """Counts how often each document was written, keeps that, and shows it.

    An operator who takes a name out of what is shown sets it to nothing.
    """

    name = "counts"
    inputs = (INPUT, VIEW)

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.seen: dict[str, str] = {}
        self.changed: set[str] = set()
        self.led: list[bool] = []
        self.order: list[str] = []

    def observe(
        self, source: int, selection: Selection, event: WatchEvent, now: Instant
    ) -> frozenset[str]:
        self.order.append("observe")
        if selection == VIEW:
            self._operator(event)
            return frozenset()
        documents: tuple[Document, ...] = ()
        if isinstance(event, Deleted) and self.counts.pop(event.name, None) is not None:
            self.changed.add(event.name)
        if isinstance(event, DocumentsListed):
            documents = event.documents
        elif isinstance(event, Changed):
            documents = (event.document,)
        for one in documents:
            if self.seen.get(one.name) != one.version:
                self.seen[one.name] = one.version
                self.count(one.name)
        return frozenset()

    def _operator(self, event: WatchEvent) -> None:
        if isinstance(event, Changed):
            for gone in self.counts.keys() - event.document.data.keys():
                if event.document.data.get("by") == "operator":
                    del self.counts[gone]
                    self.changed.add(gone)

    def count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1
        self.changed.add(name)

    def pop_changed(self) -> frozenset[str]:
        changed, self.changed = frozenset(self.changed), set()
        return changed

    def text(self, bucket: str) -> str | None:
        count = self.counts.get(bucket)
        return None if count is None else json.dumps(count)

    def restore(self, texts: Mapping[str, str], now: Instant) -> Iterable[str]:
        self.order.append("restore")
        problems = []
        for bucket, text in texts.items():
            try:
                self.counts[bucket] = max(int(text), self.counts.get(bucket, 0))
            except ValueError:
                problems.append(f"{bucket} is no number")
        return problems

    def views(self) -> tuple[View, ...]:
        data = {name: str(count) for name, count in sorted(self.counts.items())}
        return (View(SYSTEM, "total", data or None, {"shows": "counts"}),)

    async def set_leading(self, leading: bool) -> None:
        self.led.append(leading)


if __name__ == "__main__":
    from aggregator import process
    from vigil.main import main

    process.run = partial(process.run, plugins=[Counter()])
    main()
