"""Upstream's documents that show the state of plugins, in one store: written by the leader.

Foreign changes of a view are repaired. A view that a plugin reads as well, because an operator may
change it (``clusterd-manual-info-cm``), is seen through the plugin's watch: the plugin applies the
change first, and what then differs from its view is repaired. Other views have a watch of their
own.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NoReturn

import msgspec
from msgspec.structs import replace
from typing_extensions import override

from aggregator.plugin import View
from aggregator.publish.document_state import WatchedDocument
from aggregator.publish.document_writer import DocumentWriter, ended
from contract.errors import StoreError
from service.failing_requests import FailingRequests
from service.log.ongoing_failure import OngoingFailure
from service.owned_documents.owned_document import StoreContent
from stores.base import Changed, Deleted, DocumentsListed, Selection
from stores.interruption import Interrupted

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from aggregator.publish.document_writer import WriterContext
    from stores.base import Document, WatchEvent

_log = logging.getLogger(__name__)

# Upstream writes statistic-fault-info at most once in a second as well (clusterd#2.7).
_PAUSE_SECONDS = 1.0
"""A view is written at most once a second."""

_Key = tuple[str, str]


class DesiredView(msgspec.Struct, frozen=True):
    """The desired content of a view; ``revision`` grows with every change of it."""

    view: View
    revision: int


class ViewDocument(WatchedDocument[DesiredView]):
    """The observed state of one view in one store. Its readers act on whatever key it has."""

    all_keys = True

    @override
    def data(self, value: DesiredView) -> dict[str, str] | None:
        return value.view.data


class _ViewWriter:
    """The watch and the writer of one view. A view that is an input is watched elsewhere."""

    def __init__(self, context: WriterContext, desired: DesiredView, *, is_input: bool) -> None:
        view = desired.view
        self.desired = desired
        self.output = ViewDocument(view.namespace, view.name, view.labels, is_input=is_input)
        self.output.begin_term(context.clock(), fence=context.leadership.fences)
        self.writing: DocumentWriter[DesiredView] = DocumentWriter(
            context, self.output, self, pause_seconds=_PAUSE_SECONDS
        )
        self._store = context.store
        self._trouble = OngoingFailure(
            _log,
            "%s cannot be seen in %s: %s",
            "%s can be seen again in %s",
            self.output.name,
            self._store.url,
        )

    def value(self) -> DesiredView:
        return self.desired

    def check(self, value: DesiredView) -> None:
        """Accept every view: nothing reads it back."""

    def on_acknowledged(self, revision: int) -> None:
        """Do nothing: no program waits for a view."""

    def on_overtaken(self, document: Document) -> None:
        """Do nothing: an earlier leader's view is replaced like any other."""

    async def watch(self) -> NoReturn:
        view = self.desired.view
        # By name, not by label: one whose label was removed must be seen, or it is not repaired.
        selection = Selection(namespace=view.namespace, name=view.name, owned=True)
        async for event in self._store.watch(selection):
            self.observe_event(event)
        raise StoreError(f"the watch of {self._store.url} ended")

    def observe_event(self, event: WatchEvent) -> None:
        """Apply an event of a watch that shows the view, and maybe other documents."""
        view = self.desired.view
        if not isinstance(event, Interrupted):
            self._trouble.end()
        match event:
            case DocumentsListed(documents):
                mine = (
                    document
                    for document in documents
                    if _is_of(view, document.namespace, document.name)
                )
                self.output.listed(next(mine, StoreContent.NOTHING))
            case Changed(document) if _is_of(view, document.namespace, document.name):
                self.output.observe_watch(document)
            case Deleted(namespace, name) if _is_of(view, namespace, name):
                self.output.observe_watch(StoreContent.NOTHING)
            case Changed() | Deleted():
                return
            case Interrupted(reason):
                self._trouble.record_failure(reason)
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
    """All views in one store; ``inputs`` are the selections that plugins read of it."""

    def __init__(self, context: WriterContext, inputs: Iterable[Selection]) -> None:
        # Readers of views wait for no touch, and what fails of them keeps nothing else back.
        self._context = replace(context, touch_period_seconds=None, failing=FailingRequests())
        self._inputs = tuple(inputs)
        self._writers: dict[_Key, _ViewWriter] = {}
        self._tasks: list[asyncio.Task[NoReturn]] = []

    @property
    def outputs(self) -> Iterable[ViewDocument]:
        """The observed state of each view."""
        return (writer.output for writer in self._writers.values())

    def show(self, tasks: asyncio.TaskGroup, views: Iterable[View]) -> None:
        """Set the desired views. Call it only while this replica leads."""
        for view in views:
            key = (view.namespace, view.name)
            writer = self._writers.get(key)
            if writer is None:
                # Watched by the plugin already; a second watch could show an edit before the plugin
                # knows it.
                is_input = any(_is_selected(view, selection) for selection in self._inputs)
                writer = _ViewWriter(self._context, DesiredView(view, 0), is_input=is_input)
                self._writers[key] = writer
                url = self._context.store.url
                run = writer.writing.run()
                self._tasks.append(tasks.create_task(run, name=f"show {view.name} in {url}"))
                if not is_input:
                    watch = writer.watch()
                    self._tasks.append(tasks.create_task(watch, name=f"watch {view.name} in {url}"))
            # The revision grows only with a change, so an equal view causes no write.
            elif writer.desired.view != view:
                writer.desired = DesiredView(view, writer.desired.revision + 1)
                writer.writing.wake.set()

    def observe_input(self, selection: Selection, event: WatchEvent) -> None:
        """Observe an event of a plugin's input, after the plugin has applied it."""
        for writer in self._writers.values():
            if _is_selected(writer.desired.view, selection):
                writer.observe_event(event)

    async def follow(self) -> None:
        """Stop writing: another replica leads."""
        tasks = list(self._tasks)
        self._tasks.clear()
        self._writers.clear()
        await ended(tasks)
