"""Runs the aggregator plugins: reads their documents in every store, and steps them by time."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from aggregator.plugin import DocumentPlugin, Led, Persistent, Plugin, Timed, View, Viewed
from service.log.ongoing_failure import OngoingFailure
from stores.base import Changed, Deleted, DocumentsListed
from stores.interruption import Interrupted, followed

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Mapping

    from service.clock import Clock, Instant
    from service.watchdog import Watchdog
    from stores.base import Document, Selection, Store, WatchEvent

_log = logging.getLogger(__name__)


class PluginHost:
    """All aggregator plugins.

    ``judge`` receives the nodes that are to be judged again, ``on_event`` each event of a store (by
    URL) after the plugin has applied it.
    """

    def __init__(
        self,
        plugins: Iterable[Plugin],
        stores: Mapping[str, Store],
        clock: Clock,
        stalls: Watchdog,
        *,
        judge: Callable[[frozenset[str]], None],
        on_event: Callable[[str, Selection, WatchEvent], None],
    ) -> None:
        plugins = tuple(plugins)
        self.readers = tuple(plugin for plugin in plugins if isinstance(plugin, DocumentPlugin))
        self.timed = tuple(plugin for plugin in plugins if isinstance(plugin, Timed))
        self.persistent = tuple(plugin for plugin in plugins if isinstance(plugin, Persistent))
        self.viewed = tuple(plugin for plugin in plugins if isinstance(plugin, Viewed))
        self.led = tuple(plugin for plugin in plugins if isinstance(plugin, Led))
        self._stores = stores
        self._clock = clock
        self._stalls = stalls
        self._judge = judge
        self._on_event = on_event
        # Number of the store, index of the plugin and selection: two plugins may read the same
        # documents.
        self._waits: set[tuple[int, int, Selection]] = set()

    @property
    def inputs(self) -> tuple[Selection, ...]:
        """All selections that a plugin reads, each once."""
        return tuple(
            dict.fromkeys(selection for reader in self.readers for selection in reader.inputs)
        )

    def reads(self, url: str) -> bool:
        """Return whether the store with this URL is read for plugins."""
        return url in self._stores

    def is_answered(self, number: int) -> bool:
        """Return whether the store with this number has answered for every input, by a list or an
        error.
        """
        return not any(waits[0] == number for waits in self._waits)

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Start to read in tasks of the group."""
        for number, (url, store) in enumerate(self._stores.items()):
            for index, reader in enumerate(self.readers):
                for selection in reader.inputs:
                    self._waits.add((number, index, selection))
                    name = f"read {named(selection)} of {url} for plugin {index}"
                    tasks.create_task(self._read(number, store, index, selection), name=name)

    async def _read(self, number: int, store: Store, index: int, selection: Selection) -> None:
        """Read the documents of one selection in one store for one plugin.

        A refusal is logged; it keeps no other plugin and no node's document from being read.
        """
        reader = self.readers[index]
        place = f"{named(selection)} of {store.url}"
        trouble = OngoingFailure(_log, "%s cannot be read: %s", "%s can be read again", place)
        # Absence from a list is a deletion on an API server only (decision 21).
        lasting = None if store.absence_is_deletion else LastingDocuments()
        async for event in followed(partial(store.watch, selection)):
            if isinstance(event, Interrupted):
                trouble.record_failure(event.reason)
            elif isinstance(event, DocumentsListed):
                trouble.end()
            # Only while an event is applied: a watch without events is quiet, not stalled.
            with self._stalls.busy(f"read {store.url}"):
                news = event if lasting is None else lasting.news(event)
                nodes = frozenset[str]()
                if news is not None:
                    nodes = reader.observe(number, selection, news, self._clock())
                # Also after an error: the first publication waits for an answer, not for success.
                self._waits.discard((number, index, selection))
                self._judge(nodes)
                self._on_event(store.url, selection, event)

    def step(self, now: Instant) -> frozenset[str]:
        """Do what is due; return nodes to be judged again."""
        # No short circuit: each plugin has timers of its own, so each one steps.
        return frozenset().union(*(plugin.step(now) for plugin in self.timed))

    def next_due_ms(self) -> int | None:
        """Return the steady time of the next ``step``; ``None``: none by time alone."""
        due = [at for plugin in self.timed if (at := plugin.next_due_ms()) is not None]
        return min(due, default=None)

    def views(self) -> tuple[View, ...]:
        """Return the desired views of all plugins."""
        return tuple(view for plugin in self.viewed for view in plugin.views())

    async def set_leading(self, leading: bool) -> None:
        """Start or stop in each plugin what only a leader does."""
        for plugin in self.led:
            await plugin.set_leading(leading)


class LastingDocuments:
    """What a watch has shown of a store that may come back without its documents.

    A document that is missing from a list was not deleted (``docs/decisions/021``).
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Document] = {}

    def news(self, event: WatchEvent) -> WatchEvent | None:
        """Return the event with complete lists; ``None`` where it changes nothing."""
        match event:
            case DocumentsListed(documents):
                self._known |= {
                    (document.namespace, document.name): document for document in documents
                }
                return DocumentsListed(tuple(self._known.values()))
            case Changed(document):
                self._known[document.namespace, document.name] = document
            # What a list lacks was not deleted; only an explicit deletion ends a document here.
            case Deleted(_, _, by_list=True):
                return None
            case Deleted(namespace, name):
                self._known.pop((namespace, name), None)
        return event


def named(selection: Selection) -> str:
    """Return the selection as a text for logs."""
    which = selection.name or "=".join(selection.label or ()) or selection.has_label or "everything"
    return f"{which} in {selection.namespace or 'all namespaces'}"
