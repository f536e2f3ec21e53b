"""All checks: side by side where they do not need each other, shown in one order."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from contract.errors import ConfigurationError, VigilError
from stores.address import open_store
from vigil.exit_status import ExitStatus
from vigil.scan.chips import look_at_driver
from vigil.scan.cluster import look_at_cluster
from vigil.scan.configuration import look_at_configuration
from vigil.scan.directory_store import look_at_directory
from vigil.scan.documents import look_at_fault_configuration, look_at_writers
from vigil.scan.duo_cards import look_at_duo_cards
from vigil.scan.findings import problem, report
from vigil.scan.machine import look_at_clock, look_at_kernel_log, look_at_modules, look_at_user
from vigil.scan.namespaces import look_at_namespaces
from vigil.scan.state_directory import look_at_place
from vigil.scan.storage import look_at_storage
from vigil.scan.tools import look_at_bmc, look_at_links, look_at_switches

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from agent.config import AgentConfiguration
    from vigil.scan.findings import Check, ScanReport

_AREA_SECONDS = 120.0
"""Each step has a deadline of its own; this is for what none of them foresees."""


async def scan(
    file: Path | None,
    environment: Mapping[str, str],
    command_line: Mapping[str, object],
    aggregator_file: Path | None = None,
) -> ScanReport:
    """Look at everything that an agent with this configuration would use. Changes nothing."""
    configuration, checks = look_at_configuration(file, environment, command_line)
    if configuration is None:
        return report(None, checks)
    areas: dict[str, Callable[[AgentConfiguration], Awaitable[tuple[Check, ...]]]] = {
        "machine": _machine,
        "place": look_at_place,
        "hardware": _hardware,
        "bmc": look_at_bmc,
        "storage": look_at_storage,
        "store": _store,
        "namespaces": lambda _: look_at_namespaces(aggregator_file, environment),
    }
    found = await asyncio.gather(
        *(_bounded(name, look(configuration)) for name, look in areas.items())
    )
    return report(configuration.node_name, (*checks, *(one for area in found for one in area)))


async def _bounded(name: str, looking: Awaitable[tuple[Check, ...]]) -> tuple[Check, ...]:
    advice = "please report it to the authors of NPU Vigil; the other checks are not concerned"
    try:
        async with asyncio.timeout(_AREA_SECONDS):
            return await looking
    except TimeoutError:
        return (problem(name, f"no answer within {_AREA_SECONDS:g} s", advice),)
    except (VigilError, OSError) as error:
        return (problem(name, f"{type(error).__name__}: {error}", advice),)


async def _machine(configuration: AgentConfiguration) -> tuple[Check, ...]:
    return (
        look_at_user(configuration),
        await look_at_kernel_log(configuration),
        look_at_modules(configuration),
        look_at_clock(configuration),
    )


async def _hardware(configuration: AgentConfiguration) -> tuple[Check, ...]:
    driver = await look_at_driver(configuration)
    switches, links = await asyncio.gather(
        look_at_switches(configuration, driver.inventory),
        look_at_links(configuration, driver.inventory),
    )
    cards = await look_at_duo_cards(configuration, driver.inventory)
    return (*driver.checks, *cards, switches, links)


async def _store(configuration: AgentConfiguration) -> tuple[Check, ...]:
    if configuration.store.startswith(("mqtt://", "mqtts://")):
        from vigil.scan.broker import look_at_broker

        return await look_at_broker(configuration)
    others_may_write = configuration.directory.others_may_write
    if configuration.store.startswith("directory:"):
        checks: tuple[Check, ...] = (
            await look_at_directory(
                configuration.store,
                configuration.node_name,
                others_may_write=others_may_write,
            ),
        )
    else:
        checks = await look_at_cluster(configuration)
    is_usable = all(check.means < ExitStatus.WRONG_USE for check in checks)
    if not is_usable:
        return (*checks, await look_at_fault_configuration(configuration, None))
    try:
        store = open_store(
            configuration.store, configuration.kubeconfig, others_may_write=others_may_write
        )
    except ConfigurationError as error:
        found = "; ".join(str(one) for one in error.problems)
        wrong = problem("store", found, "correct --store", ExitStatus.WRONG_USE)
        return (*checks, wrong, await look_at_fault_configuration(configuration, None))
    try:
        return (
            *checks,
            await look_at_writers(configuration, store),
            await look_at_fault_configuration(configuration, store.get),
        )
    finally:
        await store.close()
