"""Checks of the driver: library, identity, calls for each chip, events."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from collectors.chip_faults.collector import ChipFaultsSection, real_list_period
from contract.codes.families import FAMILIES
from contract.counted import counted
from contract.errors import DriverCallError, DriverCallStuck, DriverError, DriverNotFound
from dcmi_shim.driver import Driver
from dcmi_shim.library.discovery import DEFAULT_DRIVER_ROOT, find_library
from dcmi_shim.library.return_codes import NOT_READY
from dcmi_shim.worker.supervisor import DriverSettings
from pacing.abandonable_thread import AbandonableThread
from vigil.driver_session import driver_session, first_answer
from vigil.exit_status import ExitStatus
from vigil.scan.findings import not_applicable, ok, problem, warning

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from agent.config import AgentConfiguration
    from dcmi_shim.library.discovery import FoundLibrary
    from dcmi_shim.values import Chip, Inventory
    from vigil.scan.findings import Check

LIBRARY, DRIVER, CALLS, EVENTS = "driver-library", "driver", "driver-calls", "driver-events"
_FIND_SECONDS = 15.0
_ANSWER_SECONDS = 12.0
"""Behind the deadline of loading and initialising it, which is 10 s."""
_CALLS_SECONDS = 30.0
_MANAGER = Path("/dev/davinci_manager")


@dataclass(frozen=True)
class Hardware:
    """What was found of the driver, and its inventory where it answers."""

    checks: tuple[Check, ...]
    inventory: Inventory | None


async def check_driver(configuration: AgentConfiguration) -> Hardware:
    """Find, load and ask the driver as the agent does, in a child process with deadlines."""
    try:
        library = await AbandonableThread(
            lambda: find_library(
                configuration.driver_root,
                trust_driver=configuration.trust_driver,
                environment=os.environ,
            ),
            "scan",
        ).result(_FIND_SECONDS)
    except (DriverNotFound, TimeoutError) as error:
        found = str(error) or f"looking for it takes longer than {_FIND_SECONDS:g} s"
        root = configuration.driver_root or DEFAULT_DRIVER_ROOT
        advice = (
            f"install the driver below {root}, name its place with --driver-root, or let root own "
            "what is refused (for development: --trust-driver)"
        )
        left_out = tuple(not_applicable(name, "no library") for name in (DRIVER, CALLS, EVENTS))
        return Hardware((problem(LIBRARY, found, advice, ExitStatus.OUTSIDE), *left_out), None)
    checks = [_library(library)]
    settings = DriverSettings(call_seconds=configuration.driver.call_deadline_seconds)
    driver = Driver(library, lambda: time.time_ns() // 1_000_000, settings)
    async with driver_session(driver) as ended:
        inventory = await first_answer(driver.inventory(), ended, _ANSWER_SECONDS)
        if inventory is None:
            checks.append(_silent(driver, ended))
            checks += (not_applicable(name, "no answer") for name in (CALLS, EVENTS))
            return Hardware(tuple(checks), None)
        calls, list_seconds = await _calls(driver, inventory)
        period = real_list_period(
            configuration.settings_of(ChipFaultsSection).list_period_seconds, list_seconds
        )
        checks += (_identity(driver, inventory), calls, _events(driver, inventory, period))
        return Hardware(tuple(checks), inventory)


def _library(library: FoundLibrary) -> Check:
    if not library.warnings:
        return ok(LIBRARY, f"{library.path}, belongs to root", facts={"path": str(library.path)})
    found = f"{library.path}, accepted by --trust-driver though {'; '.join(library.warnings)}"
    advice = "let root own it and no other user write it, before this is more than development"
    return ok(
        LIBRARY,
        found,
        advice,
        facts={"path": str(library.path), "warnings": list(library.warnings)},
    )


def _silent(driver: Driver, ended: asyncio.Task[None]) -> Check:
    error = ended.exception() if ended.done() else None
    trouble = str(error) if error is not None else driver.trouble
    hangs = [call.function for call in driver.stuck_calls()]
    found = trouble or f"it does not list its chips within {_ANSWER_SECONDS:g} s"
    if hangs:
        found = f"it hangs in {', '.join(sorted(set(hangs)))}: {found}"
    elif "takes longer" in found:
        found = f"it hangs: {found}"
    advice = "see dmesg and npu-smi info; a driver that hangs may need a restart of the host"
    if not _MANAGER.exists():
        advice += (
            f"; {_MANAGER} is not there: the driver's kernel modules are not loaded, or the "
            "device was not given to this container"
        )
    return problem(DRIVER, found, advice, ExitStatus.OUTSIDE, facts={"hangs": hangs})


def _identity(driver: Driver, inventory: Inventory) -> Check:
    family = FAMILIES.get(inventory.family)
    names = [
        str(chip.physical_id) if family is None else family.device_name(chip.physical_id)
        for chip in inventory.chips
    ]
    version = inventory.driver_version
    found = (
        f"{counted(len(names), 'chip')} of {inventory.chip_name or inventory.family} "
        f"({inventory.family}), "
        f"driver {version or 'of unknown version'}: {', '.join(names)}"
    )
    facts: dict[str, object] = {
        "chips": names,
        "family": inventory.family,
        "chip_name": inventory.chip_name,
        "driver_version": version,
    }
    if not names:
        advice = "see npu-smi info: the driver knows no card; look at dmesg and lspci"
        return problem(
            DRIVER, "it answers, and has no chip", advice, ExitStatus.OUTSIDE, facts=facts
        )
    if driver.trouble is not None:
        advice = "see npu-smi info and dmesg; what is missing is asked for again and again"
        return problem(DRIVER, f"{found}; but {driver.trouble}", advice, facts=facts)
    if inventory.virtual:
        chips = ", ".join(map(str, inventory.virtual))
        advice = "leave device-info to the vendor's Device Plugin: --documents node-info"
        return problem(
            DRIVER,
            f"{found}; chips {chips} are cut into virtual devices, which are not published",
            advice,
            facts=facts,
        )
    return ok(DRIVER, found, facts=facts)


async def _calls(driver: Driver, inventory: Inventory) -> tuple[Check, float]:
    """Check health and fault codes of each chip, once; return also how long the lists took."""
    list_seconds = 0.0
    failed: dict[str, str] = {}
    stuck: list[str] = []
    codes: dict[str, list[str]] = {}

    async def ask(chip: Chip, what: str, call: Awaitable[object]) -> object:
        try:
            return await call
        except DriverCallStuck as error:
            stuck.append(f"{error.function} on {chip}")
        except DriverError as error:
            failed[f"{what} of chip {chip.physical_id}"] = str(error)
        return None

    try:
        async with asyncio.timeout(_CALLS_SECONDS):
            for chip in inventory.chips:
                await ask(chip, "health", _health(driver, chip))
                begun = time.monotonic()
                found = await ask(chip, "fault codes", driver.error_codes(chip))
                if found is not None:
                    list_seconds += time.monotonic() - begun
                if found:
                    assert isinstance(found, tuple)
                    codes[str(chip.physical_id)] = [f"{code:08X}" for code in found]
    except TimeoutError:
        stuck.append(f"not all chips answered within {_CALLS_SECONDS:g} s")
    facts: dict[str, object] = {"hangs": stuck, "failed": dict(failed), "codes": codes}
    if stuck or failed:
        hanging = f"the driver hangs: {'; '.join(stuck)}" if stuck else ""
        texts = "; ".join(failed.values())
        advice = "other chips go on; see dmesg, and npu-smi info of that chip; a reset may help"
        found = "; ".join(filter(None, (hanging, texts)))
        return problem(CALLS, found, advice, facts=facts), list_seconds
    text = f"health and fault codes of {counted(len(inventory.chips), 'chip')}"
    if codes:
        with_codes = "".join(f"; chip {chip} has {', '.join(some)}" for chip, some in codes.items())
        advice = "faults of the hardware: the agent publishes them; see its /api/v1/faults"
        return warning(CALLS, f"{text}{with_codes}", advice, facts=facts), list_seconds
    return ok(CALLS, f"{text}; no fault", facts=facts), list_seconds


async def _health(driver: Driver, chip: Chip) -> int | None:
    """Return the health of ``chip``. One that is not ready is a fault; the driver answered well."""
    try:
        return await driver.health(chip)
    except DriverCallError as error:
        if error.return_code == NOT_READY:
            return None
        raise


def _events(driver: Driver, inventory: Inventory, period_seconds: float) -> Check:
    reason = driver.polling_reason
    if reason is None:
        return ok(EVENTS, "subscribed: faults are reported at once")
    late = f"up to {round(period_seconds, 1):g} s late"
    found = f"no events, faults are found by polls only, {late}: {reason}"
    facts: dict[str, object] = {"period_seconds": round(period_seconds, 3)}
    if not FAMILIES[inventory.family].events:
        return ok(EVENTS, f"{found}; these chips have none", facts=facts)
    advice = "update the driver; run as root, on the host"
    return problem(EVENTS, found, advice, facts=facts)
