"""Watches the operator's fault configuration, judges it, puts it in force and stores it.

It comes from two ConfigMaps of the store and from a local directory; which document of which is in
force is decided in ``contract.operator_rules.fault_configuration``. Source:
``docs/spec/device-plugin.md#3.1``, ``docs/spec/noded.md#3.1``.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from msgspec.structs import replace

from agent.fault_configuration.files import read_files, read_stored, store_in_force, watch_files
from contract.errors import Problem
from contract.operator_rules.fault_configuration import (
    CONFIG_MAPS,
    DOCUMENTS,
    ConfigurationPlace,
    FaultProblem,
    InForce,
    Judged,
    judge,
)
from contract.plural import plural
from contract.record import Record
from pacing.waiting import wait_for_event
from service.log.ongoing_failure import OngoingFailure, OngoingFailures
from stores.base import Changed, DocumentsListed, Involved, KubernetesEvent, Selection
from stores.interruption import Interrupted, followed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from contract.codes.catalogue import Catalogue
    from contract.operator_rules.fault_configuration import FaultTexts, OperatorConfigMap
    from stores.base import Deleted, Document, Store

log = logging.getLogger("agent.fault_configuration")

_FIRST_ANSWER_SECONDS = 1.0
_STORE_SECONDS = 1.0
_RETRY_SECONDS = 30.0
_MAX_LOGGED = 50
_MAX_EVENT_BYTES = 1024


class FaultConfigurationCallbacks(Record, frozen=True):
    """What the watch calls in its daemon; all return at once.

    ``configure`` puts a configuration in force, ``post`` queues a Kubernetes Event.
    """

    configure: Callable[[FaultTexts, Catalogue], None]
    post: Callable[[KubernetesEvent], None]
    wall_clock: Callable[[], int]


class FaultConfiguration:
    """Follow the fault configuration of one node.

    ``texts`` are those that the journal has as in force last; the copy in ``state_dir`` is newer.
    Nothing is put in force before ``put_cached_in_force``.
    """

    def __init__(
        self,
        store: Store,
        directory: Path | None,
        state_dir: Path,
        texts: FaultTexts,
        callbacks: FaultConfigurationCallbacks,
    ) -> None:
        self._store = store
        self._directory = directory
        self._state_dir = state_dir
        self._callbacks = callbacks
        self._data: dict[OperatorConfigMap, Mapping[str, str] | None] = {}
        self._versions: dict[OperatorConfigMap, str] = {}
        self._spoilt: dict[OperatorConfigMap, str] = {}
        self._troubles: OngoingFailures[OperatorConfigMap] = OngoingFailures(
            log,
            "%s cannot be watched: %s; the configuration already loaded stays in force",
            "%s is watched again",
            lambda config_map: config_map.name,
        )
        self._logged: frozenset[str] = frozenset()
        self._on_disk = read_stored(state_dir)
        self._one_by_one = asyncio.Lock()
        self._unanswered = set(CONFIG_MAPS)
        self._is_known = asyncio.Event()
        self._stored = asyncio.Event()
        self._to_store = asyncio.Event()
        if self._on_disk is not None:
            # The copy is what was in force last, so a start need not wait for the store.
            self._is_known.set()
        self._files = read_files(directory)
        self._newest = self._judge(self._on_disk or _all_of_config_maps(texts))
        self.judged = self._newest
        """What is in force now, and what is wrong with it."""

    @property
    def trouble(self) -> str | None:
        """Why a change would not be noticed now."""
        reasons = self._troubles.reasons
        troubles = {
            reasons[config_map]: None for config_map in CONFIG_MAPS if config_map in reasons
        }
        return "; ".join(troubles) or self._files.trouble

    def put_cached_in_force(self) -> None:
        """Put the configuration in force that is known without the store."""
        log.info("fault configuration: %s", _sources(self._newest))
        self._put_in_force(self._newest)

    async def known(self) -> None:
        """Wait for the first answer of the store, at most ``_FIRST_ANSWER_SECONDS``.

        At once if it is known.
        """
        await wait_for_event(self._is_known, _FIRST_ANSWER_SECONDS)

    async def run(self) -> NoReturn:
        """Follow the ConfigMaps and the directory until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_files(), name="fault configuration files")
            tasks.create_task(self._store_on_disk(), name="fault configuration on disk")
            for config_map in CONFIG_MAPS:
                tasks.create_task(self._follow_store(config_map), name=config_map.name)
        raise AssertionError("a watch never ends")

    async def _follow_store(self, config_map: OperatorConfigMap) -> None:
        selection = Selection(config_map.namespace, config_map.name, shows_malformed=True)
        async for event in followed(partial(self._store.watch, selection), _RETRY_SECONDS):
            if isinstance(event, Interrupted):
                self._troubles.record_failure(config_map, event.reason)
            else:
                await self._watched(config_map, event)
            self._answered(config_map)

    async def _watched(
        self, config_map: OperatorConfigMap, event: DocumentsListed | Changed | Deleted
    ) -> None:
        document: Document | None = None
        if isinstance(event, DocumentsListed):
            document = next(iter(event.documents), None)
        elif isinstance(event, Changed):
            document = event.document
        self._troubles.end(config_map)
        self._spoilt.pop(config_map, None)
        if document is not None and document.problem:
            self._spoilt[config_map] = document.problem
        else:
            self._data[config_map] = None if document is None else document.data
        self._versions[config_map] = "" if document is None else document.version
        await self._changed()

    def _answered(self, config_map: OperatorConfigMap) -> None:
        """Count ``config_map`` as judged, or as not readable.

        The other one may still be awaited.
        """
        self._unanswered.discard(config_map)
        if not self._unanswered:
            self._is_known.set()

    def _all_answered(self) -> bool:
        answered = self._data.keys() | self._troubles.reasons.keys() | self._spoilt.keys()
        return answered == set(CONFIG_MAPS)

    async def _follow_files(self) -> None:
        if self._directory is None:
            return
        async for files in watch_files(self._directory):
            if files.trouble is not None and files.trouble != self._files.trouble:
                log.error("%s", files.trouble)
            self._files = files
            await self._changed()

    async def _changed(self) -> None:
        # Judging runs in a thread, where a later change could overtake an earlier one.
        async with self._one_by_one:
            # A megabyte of codes takes a while to decode; the event loop must not wait for it.
            judged = await asyncio.to_thread(self._judge, self._newest.in_force)
            self._newest = judged
            if self._must_be_stored():
                # Before it is in force: a start must not go back to what was replaced.
                self._stored.clear()
                self._to_store.set()
                await wait_for_event(self._stored, _STORE_SECONDS)
            self._put_in_force(judged)

    def _judge(self, before: InForce) -> Judged:
        judged = judge(dict(self._data), self._files.texts, before, self._files.unreadable)
        spoilt = (
            FaultProblem(
                config_map.name,
                ConfigurationPlace.CONFIG_MAP,
                Problem(
                    "$", f"is not a valid document and left out, what is in force stays: {problem}"
                ),
                config_map,
            )
            for config_map, problem in sorted(self._spoilt.items(), key=lambda item: item[0].name)
        )
        return replace(judged, problems=(*spoilt, *judged.problems))

    def _must_be_stored(self) -> bool:
        """Return whether the configuration in force must be stored on disk.

        A configuration that only this node's own files have given is not stored.
        """
        has_answers = bool(self._data) and self._all_answered()
        return (has_answers or self._on_disk is not None) and self._on_disk != self._newest.in_force

    async def _store_on_disk(self) -> NoReturn:
        trouble = OngoingFailure(
            log, "the fault configuration cannot be kept on disk: %s", level=logging.ERROR
        )
        while True:
            await self._to_store.wait()
            self._to_store.clear()
            while self._must_be_stored():
                in_force = self._newest.in_force
                try:
                    await asyncio.to_thread(store_in_force, self._state_dir, in_force)
                except OSError as error:
                    trouble.record_failure(str(error))
                    self._stored.set()
                    await wait_for_event(self._to_store, _RETRY_SECONDS)
                    self._to_store.clear()
                else:
                    trouble.end()
                    self._on_disk = in_force
            self._stored.set()

    def _put_in_force(self, judged: Judged) -> None:
        if judged.in_force.places != self.judged.in_force.places or judged.kept != self.judged.kept:
            log.info("fault configuration: %s", _sources(judged))
        self.judged = judged
        self._callbacks.configure(judged.in_force.texts, judged.catalogue)
        problems = {str(problem): problem for problem in judged.problems}
        new = [problem for text, problem in problems.items() if text not in self._logged]
        gone = len(self._logged - problems.keys())
        self._logged = frozenset(problems)
        if not new and not gone:
            return
        for problem in new[:_MAX_LOGGED]:
            log.warning("%s", problem)
        if len(new) > _MAX_LOGGED:
            log.warning("fault configuration: there are more problems; vigil validate shows them")
        if not problems:
            log.info("fault configuration: nothing is wrong with it any more")
        for config_map in CONFIG_MAPS:
            if any(problem.config_map == config_map for problem in new):
                of_it = [
                    problem for problem in problems.values() if problem.config_map == config_map
                ]
                self._post(config_map, of_it)

    def _post(self, config_map: OperatorConfigMap, problems: Sequence[FaultProblem]) -> None:
        """Post one Event for all nodes: they find the same problems, so they give it the
        same name.
        """
        lines = (f"{problem.document}: {problem.problem}" for problem in problems)
        message = f"{plural(len(problems), 'problem')}: {'; '.join(lines)}"
        version = self._versions.get(config_map, "")
        name = hashlib.sha256(f"{version} {message}".encode()).hexdigest()[:16]
        now_ms = self._callbacks.wall_clock()
        self._callbacks.post(
            KubernetesEvent(
                namespace=config_map.namespace,
                name=f"{config_map.name}.{name}",
                involved=Involved("ConfigMap", config_map.name, config_map.namespace),
                normal=False,
                reason="FaultConfigurationProblem",
                action="ReadFaultConfiguration",
                message=message.encode()[:_MAX_EVENT_BYTES].decode(errors="ignore"),
                first_ms=now_ms,
                last_ms=now_ms,
            )
        )


def _sources(judged: Judged) -> str:
    """Return where each document in force is from, as text for the log."""
    return ", ".join(
        f"{key} from {judged.in_force.place_of(key)}{' (kept)' if key in judged.kept else ''}"
        for key in DOCUMENTS
    )


def _all_of_config_maps(texts: FaultTexts) -> InForce:
    """Return ``texts`` as in force.

    Where they were found is not recorded, so ConfigMaps are assumed.
    """
    given = {key for key, member in DOCUMENTS.items() if getattr(texts, member) is not None}
    return InForce(texts, dict.fromkeys(given, ConfigurationPlace.CONFIG_MAP))
