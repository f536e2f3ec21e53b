"""Runs all checks: concurrently where they are independent, shown in one order.

The configuration is checked first, because all other areas need it. Each area has a deadline, and
one that is late or fails becomes a problem among the others. Within an area a check waits for what
it needs, as that of links does for the driver's inventory.
"""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import TYPE_CHECKING

from contract.errors import ConfigurationError, VigilError
from contract.sentences import sentence
from stores.address import open_store
from vigil.exit_status import ExitStatus
from vigil.scan.bmc import check_bmc
from vigil.scan.configuration import (
    check_configuration,
    check_fault_configuration,
    check_namespaces,
)
from vigil.scan.findings import problem, report
from vigil.scan.hardware import (
    check_driver,
    check_duo_cards,
    check_links,
    check_switches,
)
from vigil.scan.machine import (
    check_clock,
    check_kernel_log,
    check_state_directory,
    check_storage,
    check_user,
)
from vigil.scan.store import check_cluster, check_directory, check_writers

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
    configuration, checks = check_configuration(file, environment, command_line)
    if configuration is None:
        return report(None, checks)
    areas: dict[str, Callable[[AgentConfiguration], Awaitable[tuple[Check, ...]]]] = {
        "machine": _machine,
        "place": check_state_directory,
        "hardware": _hardware,
        "bmc": check_bmc,
        "storage": check_storage,
        "store": _store,
        "namespaces": lambda _: check_namespaces(aggregator_file, environment),
    }
    # At the same time, and shown in the order of the areas, whichever ends first.
    by_area = await asyncio.gather(
        *(_bounded(name, look(configuration)) for name, look in areas.items())
    )
    return report(configuration.node_name, (*checks, *chain.from_iterable(by_area)))


async def _bounded(name: str, looking: Awaitable[tuple[Check, ...]]) -> tuple[Check, ...]:
    advice = sentence(
        "please report it to the authors of NPU Vigil; the other checks are not concerned"
    )
    try:
        async with asyncio.timeout(_AREA_SECONDS):
            return await looking
    except TimeoutError:
        return (
            problem(
                name, sentence("no answer within {seconds} s", seconds=f"{_AREA_SECONDS:g}"), advice
            ),
        )
    # One area that fails must not take the results of the others with it.
    except (VigilError, OSError) as error:
        return (problem(name, f"{type(error).__name__}: {error}", advice),)


async def _machine(configuration: AgentConfiguration) -> tuple[Check, ...]:
    return (
        check_user(configuration),
        await check_kernel_log(configuration),
        check_clock(configuration),
    )


async def _hardware(configuration: AgentConfiguration) -> tuple[Check, ...]:
    driver = await check_driver(configuration)
    # Both need the inventory, which the driver has given by now, and not each other.
    switches, links = await asyncio.gather(
        check_switches(configuration, driver.inventory),
        check_links(configuration, driver.inventory),
    )
    cards = await check_duo_cards(configuration, driver.inventory)
    return (*driver.checks, *cards, switches, links)


async def _store(configuration: AgentConfiguration) -> tuple[Check, ...]:
    if configuration.store.startswith(("mqtt://", "mqtts://")):
        # aiomqtt costs 5 MB, which users of another store do not pay (``stores/address.py``).
        from vigil.scan.broker import check_broker

        return await check_broker(configuration)
    others_may_write = configuration.directory.others_may_write
    if configuration.store.startswith("directory:"):
        checks: tuple[Check, ...] = (
            await check_directory(
                configuration.store,
                configuration.node_name,
                others_may_write=others_may_write,
            ),
        )
    else:
        checks = await check_cluster(configuration)
    is_usable = all(check.means < ExitStatus.WRONG_USE for check in checks)
    # A store that cannot be used could only repeat its error.
    if not is_usable:
        return (*checks, await check_fault_configuration(configuration, None))
    try:
        store = open_store(
            configuration.store, configuration.kubeconfig, others_may_write=others_may_write
        )
    except ConfigurationError as error:
        finding = "; ".join(str(problem) for problem in error.problems)
        wrong = problem("store", finding, sentence("correct --store"), ExitStatus.WRONG_USE)
        return (*checks, wrong, await check_fault_configuration(configuration, None))
    try:
        return (
            *checks,
            await check_writers(configuration, store),
            await check_fault_configuration(configuration, store.get),
        )
    finally:
        await store.close()
