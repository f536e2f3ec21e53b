"""Upstream's documents that show the state of plugins, in one store: written by the leader.

Foreign changes of a view are repaired. A view that a plugin reads as well, because an operator may
change it (``clusterd-manual-info-cm``), is seen through the plugin's watch: the plugin applies the
change first, and what then differs from its view is repaired. Other views have a watch of their
own.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import msgspec

from aggregator.plugin import View
from aggregator.publish.document_state import WatchedDocument
from aggregator.publish.document_writer import DocumentWriter, ended
from contract.errors import StoreError
from service.log.trouble import Trouble
from service.owned_documents.owned_document import StoreContent
from service.store_outage import Failing
from stores.base import Changed, Deleted, DocumentsListed, Selection
from stores.interruption import Interrupted

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from aggregator.publish.document_writer import WriterContext
    from stores.base import WatchEvent

_log = logging.getLogger(__name__)

_PAUSE_SECONDS = 1.0
"""A view is written at most once a second."""

_Key = tuple[str, str]


class Showing(msgspec.Struct, frozen=True):
    """A view as it is wanted now."""

    view: View
    revision: int


class ViewOutput(WatchedDocument[Showing]):
    """What is known of one view in one store. Its readers act on whatever key it has."""

    all_keys = True

    def data(self, value: Showing) -> dict[str, str] | None:
        """See ``WatchedDocument``."""
        return value.view.data


class _Shown:
    """One view: its watch and its writer. One that is an input is watched elsewhere."""

    def __init__(self, context: WriterContext, showing: Showing, *, is_input: bool) -> None:
        view = showing.view
        self.showing = showing
        self.output = ViewOutput(view.namespace, view.name, view.labels, is_input=is_input)
        self.output.begin(context.clock(), fence=context.leadership.fences)
        self.writing = DocumentWriter(
            context, self.output, value=lambda: self.showing, pause_seconds=_PAUSE_SECONDS
        )
        self._store = context.store
        self._trouble = Trouble(
            _log,
            "%s cannot be seen in %s: %s",
            "%s can be seen again in %s",
            self.output.name,
            self._store.url,
        )

    async def watch(self) -> NoReturn:
        view = self.showing.view
        selection = Selection(namespace=view.namespace, name=view.name, owned=True)
        async for event in self._store.watch(selection):
            self.observe(event)
        raise StoreError(f"the watch of {self._store.url} ended")

    def observe(self, event: WatchEvent) -> None:
        """Apply an event of a watch that shows the view, and maybe other documents."""
        view = self.showing.view
        if not isinstance(event, Interrupted):
            self._trouble.end()
        match event:
            case DocumentsListed(documents):
                mine = (one for one in documents if _is_of(view, one.namespace, one.name))
                self.output.listed(next(mine, StoreContent.NOTHING))
            case Changed(document) if _is_of(view, document.namespace, document.name):
                self.output.observe_watch(document)
            case Deleted(namespace, name) if _is_of(view, namespace, name):
                self.output.observe_watch(StoreContent.NOTHING)
            case Changed() | Deleted():
                return
            case Interrupted(reason):
                self._trouble.begin(reason)
                self.output.interrupted()
        self.writing.wake.set()


def _is_of(view: View, namespace: str, name: str) -> bool:
    return (view.namespace, view.name) == (namespace, name)


def _is_selected(view: View, selection: Selection) -> bool:
    return (
        selection.namespace in (None, view.namespace)
        and selection.name in (None, view.name)
        and (selection.label is None or selection.label in view.labels.items())
    )


class UpstreamViews:
    """All views in one store; ``inputs`` are what plugins read of it."""

    def __init__(self, context: WriterContext, inputs: Iterable[Selection]) -> None:
        # Readers of views wait for no touch, and what fails of them keeps nothing else back.
        self._context = replace(context, touch_period_seconds=None, failing=Failing())
        self._inputs = tuple(inputs)
        self._shown: dict[_Key, _Shown] = {}
        self._tasks: list[asyncio.Task[NoReturn]] = []

    @property
    def outputs(self) -> Iterable[ViewOutput]:
        """What is known of each."""
        return (one.output for one in self._shown.values())

    def show(self, tasks: asyncio.TaskGroup, views: Iterable[View]) -> None:
        """Set the desired views. Call it only while this replica leads."""
        for view in views:
            key = (view.namespace, view.name)
            shown = self._shown.get(key)
            if shown is None:
                is_input = any(_is_selected(view, selection) for selection in self._inputs)
                shown = _Shown(self._context, Showing(view, 0), is_input=is_input)
                self._shown[key] = shown
                url = self._context.store.url
                run = shown.writing.run()
                self._tasks.append(tasks.create_task(run, name=f"show {view.name} in {url}"))
                if not is_input:
                    watch = shown.watch()
                    self._tasks.append(tasks.create_task(watch, name=f"watch {view.name} in {url}"))
            elif shown.showing.view != view:
                shown.showing = Showing(view, shown.showing.revision + 1)
                shown.writing.wake.set()

    def observe(self, selection: Selection, event: WatchEvent) -> None:
        """Observe an event of a plugin's input, after the plugin has applied it."""
        for shown in self._shown.values():
            if _is_selected(shown.showing.view, selection):
                shown.observe(event)

    async def follow(self) -> None:
        """Write no more."""
        tasks = list(self._tasks)
        self._tasks.clear()
        self._shown.clear()
        await ended(tasks)
