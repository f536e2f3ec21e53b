"""Checks of the namespaces from which the aggregator takes public faults and rank tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aggregator.accepted_namespaces import ALL
from aggregator.config import load_aggregator
from contract.errors import ConfigurationError
from pacing.abandonable_thread import AbandonableThread
from vigil.scan.findings import not_applicable, ok, problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vigil.scan.findings import Check

PUBLIC_FAULTS, RANK_TABLES = "public-fault-namespaces", "rank-table-namespaces"
USUAL_FILE = Path("/etc/npu-vigil/aggregator.toml")
_SECONDS = 10.0
_VARIABLES = ("VIGIL_PUBLIC_FAULTS_NAMESPACES", "VIGIL_RANK_TABLES_NAMESPACES")


async def check_namespaces(file: Path | None, environment: Mapping[str, str]) -> tuple[Check, ...]:
    """Return both settings of the aggregator that ``file`` or ``environment`` configures.

    Without ``file`` the usual one is read, if it is there.
    """
    try:
        return await AbandonableThread(lambda: _settings(file, environment), "scan").result(
            _SECONDS
        )
    except TimeoutError:
        found = f"{file or USUAL_FILE} hangs: no answer within {_SECONDS:g} s"
        advice = "put the aggregator's file on a local disk"
        return tuple(problem(name, found, advice) for name in (PUBLIC_FAULTS, RANK_TABLES))


def _settings(file: Path | None, environment: Mapping[str, str]) -> tuple[Check, ...]:
    if file is None and USUAL_FILE.is_file():
        file = USUAL_FILE
    given = {name: environment[name] for name in _VARIABLES if name in environment}
    if file is None and not given:
        why = (
            f"no aggregator is configured here ({USUAL_FILE} is not there): scan where it runs, "
            "or give --aggregator-config"
        )
        return tuple(not_applicable(name, why) for name in (PUBLIC_FAULTS, RANK_TABLES))
    try:
        configuration = load_aggregator(file, given, {})
    except ConfigurationError as error:
        found = f"{error.source}: {'; '.join(map(str, error.problems))}"
        advice = "correct all of it; docs/configuration.md has every option"
        return tuple(problem(name, found, advice) for name in (PUBLIC_FAULTS, RANK_TABLES))
    advice = "name the namespaces of those who may isolate chips in public_faults.namespaces"
    return (
        _shown(PUBLIC_FAULTS, configuration.public_faults.namespaces, advice),
        _shown(RANK_TABLES, configuration.rank_tables.namespaces, ""),
    )


def _shown(name: str, namespaces: tuple[str, ...], advice: str) -> Check:
    facts: dict[str, object] = {"namespaces": list(namespaces)}
    if ALL in namespaces:
        return ok(name, "all namespaces", advice, facts)
    return ok(name, ", ".join(namespaces), facts=facts)
