"""Checks of documents in the store: other writers, and the fault configuration."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeAlias

from agent.fault_configuration.files import read_files
from agent.publishing.ownership import other_program, owned_by
from contract.errors import StoreError, StoreRefused
from contract.operator_rules.fault_configuration import (
    CONFIG_MAPS,
    DOCUMENTS,
    InForce,
    judge,
)
from pacing.abandonable_thread import AbandonableThread
from stores.deadline import answered_within
from vigil.exit_status import ExitStatus
from vigil.scan.findings import not_applicable, ok, problem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from agent.config import AgentConfiguration
    from contract.operator_rules.fault_configuration import OperatorConfigMap
    from stores.base import Document, Store
    from vigil.scan.findings import Check

WRITERS, FAULT_CONFIGURATION = "other-writers", "fault-configuration"
_SECONDS = 10.0

Read: TypeAlias = "Callable[[str, str], Awaitable[Document | None]]"
"""Reads a document by namespace and name, as ``Store.get``."""


async def check_writers(configuration: AgentConfiguration, store: Store) -> Check:
    """Check whether a Device Plugin or NodeD writes what this agent is to write."""
    if configuration.shadow:
        return not_applicable(WRITERS, "in shadow nothing is written, others are expected")
    owned = owned_by(configuration.node_name, configuration.documents)
    now_ms = time.time_ns() // 1_000_000
    try:
        async with answered_within(_SECONDS):
            found = [
                other_program(one, await store.writer(one.namespace, one.name), now_ms)
                for one in owned
            ]
    except StoreRefused as error:
        return not_applicable(WRITERS, f"who writes is not known: {error}")
    except StoreError as error:
        return problem(WRITERS, str(error), "scan again when the store answers", ExitStatus.OUTSIDE)
    others = [str(other) for other in found if other is not None]
    if others:
        advice = "one of the two must stop, see above: until then this agent is not ready"
        return problem(WRITERS, "; ".join(others), advice)
    return ok(WRITERS, f"no other program writes {' or '.join(one.kind for one in owned)}")


async def check_fault_configuration(configuration: AgentConfiguration, read: Read | None) -> Check:
    """Return what is wrong in the operator's tables and rules, in the store and in files."""
    given: dict[OperatorConfigMap, Mapping[str, str] | None] = {}
    unread = "the store is not asked" if read is None else ""
    for config_map in CONFIG_MAPS if read is not None else ():
        assert read is not None
        try:
            async with answered_within(_SECONDS):
                document = await read(config_map.namespace, config_map.name)
            given[config_map] = None if document is None else document.data
        except StoreError as error:
            unread = str(error)
    try:
        files = await AbandonableThread(
            lambda: read_files(configuration.fault_config_dir), "scan"
        ).result(_SECONDS)
    except TimeoutError:
        found = f"{configuration.fault_config_dir} hangs: no answer within {_SECONDS:g} s"
        return problem(FAULT_CONFIGURATION, found, "put the files on a local disk")
    judged = judge(given, files.texts, InForce(), files.unreadable)
    sources = {key: str(judged.in_force.place_of(key)) for key in DOCUMENTS}
    found = ", ".join(f"{key} from {place}" for key, place in sources.items())
    if judged.problems:
        texts = [str(one) for one in judged.problems]
        advice = "correct it (vigil validate FILE); what is wrong has no effect, the rest has"
        return problem(
            FAULT_CONFIGURATION, "; ".join(texts), advice, facts={"problems": texts, **sources}
        )
    if unread:
        return not_applicable(
            FAULT_CONFIGURATION, f"{found}; what the store has is not known: {unread}"
        )
    return ok(FAULT_CONFIGURATION, found, facts={**sources})
