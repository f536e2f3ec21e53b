"""The documents of a store as a source, where no daemon answers."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import override

from contract.errors import StoreUnavailable
from contract.names import (
    DEVICE_INFO_NAMESPACE,
    NODE_INFO_NAMESPACE,
    device_info_name,
    node_info_name,
)
from contract.sentences import sentence
from stores.address import open_store, shown
from stores.base import READ_SECONDS, Selection
from stores.interruption import Interrupted
from vigil.sources.document_answers import DocumentAnswers
from vigil.sources.source import AnswerSource
from vigil.sources.store_contents import (
    CLUSTER_INFOS,
    DEVICE_INFOS,
    NODE_INFOS,
    read_causes,
    read_contents,
    read_jobs,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import NoReturn

    from stores.base import Store
    from vigil.reports.explanation import NodeExplanation
    from vigil.reports.job_report import JobReport
    from vigil.reports.status_report import StatusReport
    from vigil.sources.source import Signal
    from vigil.sources.store_contents import StoreContents

T = TypeVar("T")
_CLOSE_SECONDS = 2.0
_CHANGE_SECONDS = 0.1
"""Changes within this are read together."""


class EventLoop:
    """Runs coroutines one after the other, and tasks beside them, until ``close``."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        # A thread of its own: watches go on while the verb prints and waits.
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], seconds: float, purpose: str) -> T:
        """Return the result of ``work``. Raises what it raises.

        ``StoreUnavailable`` names ``purpose`` when that takes longer than ``seconds``.
        """
        running = asyncio.run_coroutine_threadsafe(_limited(work, seconds, purpose), self._loop)
        try:
            return running.result()
        except BaseException:
            # Ctrl-C is raised in this thread, and the work goes on in the other one.
            running.cancel()
            raise

    def start_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` until it ends, or until ``close``."""

        async def start() -> None:
            task = asyncio.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        asyncio.run_coroutine_threadsafe(start(), self._loop).result()

    def close(self, last: Coroutine[Any, Any, None], seconds: float) -> None:
        """End all tasks, run ``last`` for at most ``seconds``, and end the thread."""

        async def end() -> None:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            async with asyncio.timeout(seconds):
                await last

        with suppress(Exception, CancelledError):
            asyncio.run_coroutine_threadsafe(end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _limited(work: Coroutine[Any, Any, T], seconds: float, purpose: str) -> T:
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        raise StoreUnavailable(f"{purpose} gives no answer in {seconds:g} s") from None


class StoreSource(AnswerSource):
    """What the documents of the store at ``url`` show; see ``AnswerSource``.

    Settings of a broker come from the environment, as those of the aggregator.
    """

    def __init__(self, url: str, kubeconfig: str | None) -> None:
        self._address = shown(url)
        self._loop = EventLoop()
        self._store = self._loop.run(_opened(url, kubeconfig), READ_SECONDS, self._address)

    @override
    def report(self, node: str | None) -> StatusReport:
        return DocumentAnswers(self._contents(node), self._address, node).report()

    @override
    def explanation(self, node: str, part: str) -> NodeExplanation:
        contents = self._read(read_causes(self._store, self._contents(node), node))
        return DocumentAnswers(contents, self._address, node).explanation(part)

    @override
    def jobs(self) -> JobReport:
        """See ``AnswerSource``. Only an API server has pods."""
        contents = self._read(read_jobs(self._store, self._address))
        return DocumentAnswers(contents, self._address).jobs()

    @override
    def history(self, *_: object) -> NoReturn:
        """See ``AnswerSource``. Documents have no history."""
        text = sentence(
            "documents at {address} have no history; an aggregator has one", address=self._address
        )
        raise StoreUnavailable(text)

    @override
    def signal(self, node: str | None) -> Signal:
        """See ``AnswerSource``. Documents are followed as an aggregator follows them."""
        return _Changes(self._store, self._loop, node)

    @override
    def close(self) -> None:
        self._loop.close(self._store.close(), _CLOSE_SECONDS)

    def _contents(self, node: str | None) -> StoreContents:
        return self._read(read_contents(self._store, node))

    def _read(self, work: Coroutine[Any, Any, StoreContents]) -> StoreContents:
        # The lists of a large cluster take their time.
        return self._loop.run(work, 2 * READ_SECONDS, self._address)


async def _opened(url: str, kubeconfig: str | None) -> Store:
    mqtt = None
    if url.startswith("mqtt"):
        from aggregator.config import load_aggregator

        mqtt = load_aggregator(None, os.environ, {"store": [url]}).mqtt
    # A verb that only reads may use a directory that others may write.
    return open_store(url, kubeconfig, mqtt=mqtt, others_may_write=True)


class _Changes:
    """Follows the documents of a store, of ``node`` and of the cluster only with one."""

    def __init__(self, store: Store, loop: EventLoop, node: str | None) -> None:
        self._came = threading.Event()
        infos = [DEVICE_INFOS, NODE_INFOS]
        if node is not None:
            infos = [
                Selection(DEVICE_INFO_NAMESPACE, device_info_name(node)),
                Selection(NODE_INFO_NAMESPACE, node_info_name(node)),
            ]
        for selection in (*infos, CLUSTER_INFOS):
            loop.start_task(self._follow(store, selection))

    async def _follow(self, store: Store, selection: Selection) -> None:
        async for event in store.watch(selection):
            if not isinstance(event, Interrupted):
                self._came.set()

    def wait(self) -> None:
        """Wait for a change, and shortly for those that come with it."""
        self._came.wait()
        time.sleep(_CHANGE_SECONDS)
        self._came.clear()
