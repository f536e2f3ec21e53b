"""Checks of what is configured: the agent, the operator's fault configuration, the aggregator.

The agent's is read as the agent would read it; the others only where they are.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from agent.config import load_agent
from agent.fault_configuration.files import read_files
from aggregator.accepted_namespaces import ALL
from aggregator.config import load_aggregator
from contract.errors import ConfigurationError, StoreError
from contract.operator_rules.fault_configuration import (
    CONFIG_MAPS,
    DOCUMENTS,
    ConfigurationPlace,
    InForce,
    judge,
)
from contract.sentences import joined, message, sentence
from pacing.abandonable_thread import AbandonableThread
from stores.deadline import answered_within
from vigil.exit_status import ExitStatus
from vigil.scan.findings import no_answer, not_applicable, ok, problem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from agent.config import AgentConfiguration
    from contract.operator_rules.fault_configuration import OperatorConfigMap
    from stores.base import Document
    from vigil.scan.findings import Check

CONFIGURATION, NODE = "configuration", "node-name"
PUBLIC_FAULTS, RANK_TABLES = "public-fault-namespaces", "rank-table-namespaces"
USUAL_FILE = Path("/etc/npu-vigil/aggregator.toml")
_SECONDS = 10.0
_VARIABLES = ("VIGIL_PUBLIC_FAULTS_NAMESPACES", "VIGIL_RANK_TABLES_NAMESPACES")
FAULT_CONFIGURATION = "fault-configuration"
_ORIGINS = {
    ConfigurationPlace.CONFIG_MAP: message("{document} from configmap"),
    ConfigurationPlace.FILE: message("{document} from file"),
    ConfigurationPlace.SHIPPED: message("{document} from shipped"),
}
Read: TypeAlias = "Callable[[str, str], Awaitable[Document | None]]"
"""Reads a document by namespace and name, as ``Store.get``."""


def check_configuration(
    file: Path | None, environment: Mapping[str, str], command_line: Mapping[str, object]
) -> tuple[AgentConfiguration | None, tuple[Check, ...]]:
    """Return what is configured, ``None`` if it cannot be used, and every problem of it."""
    source = sentence("options and environment") if file is None else str(file)
    try:
        configuration = load_agent(file, environment, command_line)
    except ConfigurationError as error:
        problems = [str(problem) for problem in error.problems]
        advice = sentence("correct all of it; docs/configuration.md has every option")
        check = problem(
            CONFIGURATION,
            f"{error.source}: {'; '.join(problems)}",
            advice,
            ExitStatus.WRONG_USE,
            facts={"problems": problems},
        )
        return None, (check, not_applicable(NODE, sentence("the configuration cannot be used")))
    node = configuration.node_name
    return configuration, (
        ok(CONFIGURATION, source, facts={"source": source}),
        ok(NODE, node, facts={"node": node}),
    )


async def check_namespaces(file: Path | None, environment: Mapping[str, str]) -> tuple[Check, ...]:
    """Return both settings of the aggregator that ``file`` or ``environment`` configures.

    Without ``file`` the usual one is read, if it is there.
    """
    try:
        return await AbandonableThread(lambda: _settings(file, environment), "scan").result(
            _SECONDS
        )
    except TimeoutError:
        finding = no_answer(file or USUAL_FILE, _SECONDS)
        advice = sentence("put the aggregator's file on a local disk")
        return tuple(problem(name, finding, advice) for name in (PUBLIC_FAULTS, RANK_TABLES))


def _settings(file: Path | None, environment: Mapping[str, str]) -> tuple[Check, ...]:
    if file is None and USUAL_FILE.is_file():
        file = USUAL_FILE
    # Only these: the other variables of this shell configure the agent.
    given = {name: environment[name] for name in _VARIABLES if name in environment}
    if file is None and not given:
        reason = sentence(
            "no aggregator is configured here ({file} is not there): scan where it runs, or give "
            "--aggregator-config",
            file=USUAL_FILE,
        )
        return tuple(not_applicable(name, reason) for name in (PUBLIC_FAULTS, RANK_TABLES))
    try:
        configuration = load_aggregator(file, given, {})
    except ConfigurationError as error:
        finding = f"{error.source}: {'; '.join(map(str, error.problems))}"
        advice = sentence("correct all of it; docs/configuration.md has every option")
        return tuple(problem(name, finding, advice) for name in (PUBLIC_FAULTS, RANK_TABLES))
    advice = sentence(
        "name the namespaces of those who may isolate chips in public_faults.namespaces"
    )
    return (
        _shown(PUBLIC_FAULTS, configuration.public_faults.namespaces, advice),
        _shown(RANK_TABLES, configuration.rank_tables.namespaces, ""),
    )


def _shown(name: str, namespaces: tuple[str, ...], advice: str) -> Check:
    facts: dict[str, object] = {"namespaces": list(namespaces)}
    if ALL in namespaces:
        return ok(name, sentence("all namespaces"), advice, facts)
    return ok(name, joined("{before}, {part}", namespaces or [""]), facts=facts)


async def check_fault_configuration(configuration: AgentConfiguration, read: Read | None) -> Check:
    """Return what is wrong in the operator's tables and rules, in the store and in files."""
    given: dict[OperatorConfigMap, Mapping[str, str] | None] = {}
    unread = ""
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
        finding = no_answer(configuration.fault_config_dir, _SECONDS)
        return problem(FAULT_CONFIGURATION, finding, sentence("put the files on a local disk"))
    judged = judge(given, files.texts, InForce(), files.unreadable)
    sources = {key: str(judged.in_force.place_of(key)) for key in DOCUMENTS}
    origins = [sentence(_ORIGINS[judged.in_force.place_of(key)], document=key) for key in DOCUMENTS]
    finding = joined("{before}, {part}", origins)
    if judged.problems:
        texts = [str(problem) for problem in judged.problems]
        advice = sentence(
            "correct it (vigil validate FILE); what is wrong has no effect, the rest has"
        )
        return problem(
            FAULT_CONFIGURATION, "; ".join(texts), advice, facts={"problems": texts, **sources}
        )
    if read is None:
        text = sentence(
            "{finding}; what the store has is not known: the store is not asked", finding=finding
        )
        return not_applicable(FAULT_CONFIGURATION, text)
    if unread:
        return not_applicable(
            FAULT_CONFIGURATION,
            sentence(
                "{finding}; what the store has is not known: {reason}",
                finding=finding,
                reason=unread,
            ),
        )
    return ok(FAULT_CONFIGURATION, finding, facts={**sources})
