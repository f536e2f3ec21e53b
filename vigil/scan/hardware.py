"""Checks of the hardware: driver, cards, switch library, and ``hccn_tool``."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent.node.device_plugin import ADVICE, is_duo, plugins_resetting_cards
from collectors.chip_faults.collector import ChipFaultsSection, real_list_period
from collectors.links.collector import LinksSection, check_once, counts_uboe
from collectors.switch import WITH_SWITCHES
from contract.codes.families import FAMILIES
from contract.errors import (
    DriverCallError,
    DriverCallStuck,
    DriverError,
    DriverNotFound,
    ToolError,
    ToolMissing,
    ToolSilent,
    VigilError,
)
from contract.sentences import counted, joined, message, sentence
from dcmi_shim.driver import Driver
from dcmi_shim.hccn.tool import HccnTool
from dcmi_shim.library.discovery import DEFAULT_DRIVER_ROOT, VendorPaths, find_library
from dcmi_shim.library.return_codes import NOT_READY
from dcmi_shim.library.vendor import LINGQU
from dcmi_shim.switch.driver import SwitchDriver
from dcmi_shim.worker.supervisor import DriverSettings
from pacing.abandonable_thread import AbandonableThread
from stores.address import open_store
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
DUO = "duo-cards"
SWITCHES, LINKS = "switch-library", "hccn_tool"
_SWITCH_SECONDS = 15.0
_LINKS_SECONDS = 30.0


@dataclass(frozen=True)
class Hardware:
    """What was found of the driver, and its inventory where it answers."""

    checks: tuple[Check, ...]
    inventory: Inventory | None


async def check_driver(configuration: AgentConfiguration) -> Hardware:
    """Find, load and ask the driver as the agent does, in a child process with deadlines."""
    paths = VendorPaths(configuration.driver_root, configuration.trust_driver, os.environ)
    try:
        # In a thread: a file system that hangs must not hold the scan.
        search = AbandonableThread(lambda: find_library(paths), "scan")
        library = await search.result(_FIND_SECONDS)
    except (DriverNotFound, TimeoutError) as error:
        text = str(error) or sentence(
            "looking for it takes longer than {seconds} s", seconds=f"{_FIND_SECONDS:g}"
        )
        root = configuration.driver_root or DEFAULT_DRIVER_ROOT
        advice = sentence(
            "install the driver below {root}, name its place with --driver-root, or let "
            "root own what is refused (for development: --trust-driver)",
            root=root,
        )
        left_out = tuple(
            not_applicable(name, sentence("no library")) for name in (DRIVER, CALLS, EVENTS)
        )
        return Hardware((problem(LIBRARY, text, advice, ExitStatus.OUTSIDE), *left_out), None)
    checks = [_library_check(library)]
    settings = DriverSettings(call_seconds=configuration.driver.call_deadline_seconds)
    driver = Driver(library, lambda: time.time_ns() // 1_000_000, settings)
    async with driver_session(driver) as ended:
        inventory = await first_answer(driver.inventory(), ended, _ANSWER_SECONDS)
        if inventory is None:
            checks.append(_silent(driver, ended))
            checks += (not_applicable(name, sentence("no answer")) for name in (CALLS, EVENTS))
            return Hardware(tuple(checks), None)
        calls, list_seconds = await _calls(driver, inventory)
        # The agent asks less often where the lists take long, so the same delay is shown.
        period = real_list_period(
            configuration.settings_of(ChipFaultsSection).list_period_seconds, list_seconds
        )
        checks += (_identity(driver, inventory), calls, _events(driver, inventory, period))
        return Hardware(tuple(checks), inventory)


def _library_check(library: FoundLibrary) -> Check:
    if not library.warnings:
        return ok(
            LIBRARY,
            sentence("{path}, belongs to root", path=library.path),
            facts={"path": str(library.path)},
        )
    finding = f"{library.path}, accepted by --trust-driver though {'; '.join(library.warnings)}"
    advice = sentence(
        "let root own it and no other user write it, before this is more than development"
    )
    return ok(
        LIBRARY,
        finding,
        advice,
        facts={"path": str(library.path), "warnings": list(library.warnings)},
    )


def _silent(driver: Driver, ended: asyncio.Task[None]) -> Check:
    error = ended.exception() if ended.done() else None
    trouble = str(error) if error is not None else driver.trouble
    hangs = [call.function for call in driver.stuck_calls()]
    finding = trouble or sentence(
        "it does not list its chips within {seconds} s", seconds=f"{_ANSWER_SECONDS:g}"
    )
    if hangs:
        finding = sentence(
            "it hangs in {functions}: {reason}",
            functions=joined("{before}, {part}", sorted(set(hangs))),
            reason=finding,
        )
    elif "takes longer" in finding:
        finding = sentence("it hangs: {reason}", reason=finding)
    advice = sentence(
        "see dmesg and npu-smi info; a driver that hangs may need a restart of the host"
    )
    if not _MANAGER.exists():
        advice = sentence(
            "{advice}; {device} is not there: the driver's kernel modules are not loaded, or the "
            "device was not given to this container",
            advice=advice,
            device=_MANAGER,
        )
    return problem(DRIVER, finding, advice, ExitStatus.OUTSIDE, facts={"hangs": hangs})


def _identity(driver: Driver, inventory: Inventory) -> Check:
    family = FAMILIES.get(inventory.family)
    names = [
        str(chip.physical_id) if family is None else family.device_name(chip.physical_id)
        for chip in inventory.chips
    ]
    version = inventory.driver_version
    finding = counted(
        len(names),
        "{count} chip of {chip_name} ({family}), driver {version}: {names}",
        "{count} chips of {chip_name} ({family}), driver {version}: {names}",
        chip_name=inventory.chip_name or inventory.family,
        family=inventory.family,
        version=version or sentence("of unknown version"),
        names=joined("{before}, {part}", names or [""]),
    )
    facts: dict[str, object] = {
        "chips": names,
        "family": inventory.family,
        "chip_name": inventory.chip_name,
        "driver_version": version,
    }
    if not names:
        advice = sentence("see npu-smi info: the driver knows no card; look at dmesg and lspci")
        return problem(
            DRIVER, sentence("it answers, and has no chip"), advice, ExitStatus.OUTSIDE, facts=facts
        )
    if driver.trouble is not None:
        advice = sentence(
            "see npu-smi info and dmesg; what is missing is asked for again and again"
        )
        return problem(
            DRIVER,
            sentence("{finding}; but: {reason}", finding=finding, reason=driver.trouble),
            advice,
            facts=facts,
        )
    if inventory.virtual:
        chips = joined("{before}, {part}", map(str, inventory.virtual))
        advice = sentence("leave device-info to the vendor's Device Plugin: --documents node-info")
        return problem(
            DRIVER,
            sentence(
                "{finding}; chips {chips} are cut into virtual devices, which are not published",
                finding=finding,
                chips=chips,
            ),
            advice,
            facts=facts,
        )
    return ok(DRIVER, finding, facts=facts)


async def _calls(driver: Driver, inventory: Inventory) -> tuple[Check, float]:
    """Check health and fault codes of each chip, once; return also how long the lists took."""
    list_seconds = 0.0
    failed: dict[str, str] = {}
    stuck: list[str] = []
    codes: dict[str, list[str]] = {}

    async def ask(chip: Chip, label: str, call: Awaitable[object]) -> object:
        try:
            return await call
        except DriverCallStuck as error:
            stuck.append(sentence("{function} on {chip}", function=error.function, chip=chip))
        except DriverError as error:
            failed[f"{label} of chip {chip.physical_id}"] = str(error)
        return None

    try:
        async with asyncio.timeout(_CALLS_SECONDS):
            for chip in inventory.chips:
                await ask(chip, "health", _health(driver, chip))
                begun = time.monotonic()
                listed = await ask(chip, "fault codes", driver.error_codes(chip))
                if listed is not None:
                    list_seconds += time.monotonic() - begun
                if listed:
                    assert isinstance(listed, tuple)
                    codes[str(chip.physical_id)] = [f"{code:08X}" for code in listed]
    except TimeoutError:
        text = message("not all chips answered within {seconds} s")
        stuck.append(sentence(text, seconds=f"{_CALLS_SECONDS:g}"))
    facts: dict[str, object] = {"hangs": stuck, "failed": dict(failed), "codes": codes}
    if stuck or failed:
        texts = [*failed.values()]
        if stuck:
            calls = joined("{before}; {part}", stuck)
            texts = [sentence("the driver hangs: {calls}", calls=calls), *texts]
        advice = sentence(
            "other chips go on; see dmesg, and npu-smi info of that chip; a reset may help"
        )
        finding = joined("{before}; {part}", texts)
        return problem(CALLS, finding, advice, facts=facts), list_seconds
    text = counted(
        len(inventory.chips),
        "health and fault codes of {count} chip",
        "health and fault codes of {count} chips",
    )
    if codes:
        for number, some in codes.items():
            text = sentence(
                "{text}; chip {chip} has {codes}",
                text=text,
                chip=number,
                codes=joined("{before}, {part}", some),
            )
        advice = sentence(
            "faults of the hardware: the agent publishes them; see its /api/v1/faults"
        )
        return warning(
            CALLS,
            text,
            advice,
            facts=facts,
        ), list_seconds
    return ok(CALLS, sentence("{text}; no fault", text=text), facts=facts), list_seconds


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
        return ok(EVENTS, sentence("subscribed: faults are reported at once"))
    finding = sentence(
        "no events, faults are found by polls only, up to {seconds} s late: {reason}",
        seconds=f"{round(period_seconds, 1):g}",
        reason=reason,
    )
    facts: dict[str, object] = {"period_seconds": round(period_seconds, 3)}
    # A family without events lacks nothing.
    if not FAMILIES[inventory.family].events:
        finding = sentence("{finding}; these chips have none", finding=finding)
        return ok(EVENTS, finding, facts=facts)
    advice = sentence("update the driver; run as root, on the host")
    return problem(EVENTS, finding, advice, facts=facts)


async def check_duo_cards(
    configuration: AgentConfiguration, inventory: Inventory | None
) -> tuple[Check, ...]:
    """Check whether device-info and such a plugin agree; nothing where there are no such cards."""
    if inventory is None or not is_duo(inventory):
        return ()
    if configuration.compatibility.duo_cards == "together":
        return (ok(DUO, sentence("both dies of a card are unhealthy when one is")),)
    plugins = await _plugins(configuration)
    if plugins:
        text = sentence(
            "a Device Plugin resets both dies of a card as one (-hotReset=0): {plugins}",
            plugins=joined("{before}, {part}", plugins),
        )
        return (problem(DUO, text, sentence(ADVICE), facts={"plugins": plugins}),)
    return (
        ok(DUO, sentence("each die counts for itself; no Device Plugin with -hotReset=0 is seen")),
    )


async def _plugins(configuration: AgentConfiguration) -> list[str]:
    node = configuration.node_name
    if not configuration.store.startswith("kubernetes:"):
        return await plugins_resetting_cards(None, node)
    try:
        store = open_store(configuration.store, configuration.kubeconfig)
    except VigilError:  # which another check reports
        return await plugins_resetting_cards(None, node)
    try:
        return await plugins_resetting_cards(store.objects, node)
    finally:
        await store.close()


async def check_switches(configuration: AgentConfiguration, inventory: Inventory | None) -> Check:
    """Check whether the switch library of a server that has switches lists their faults."""
    if inventory is None:
        return not_applicable(
            SWITCHES, sentence("the driver does not show whether there are switches")
        )
    if inventory.family != WITH_SWITCHES:
        return not_applicable(
            SWITCHES,
            sentence("an {family} server has no switches on board", family=inventory.family),
        )
    paths = VendorPaths(configuration.driver_root, configuration.trust_driver, os.environ)
    driver = SwitchDriver(lambda: find_library(paths, LINGQU), lambda: time.time_ns() // 1_000_000)
    try:
        async with driver_session(driver), asyncio.timeout(_SWITCH_SECONDS):
            faults = await driver.faults()
    except (DriverError, TimeoutError) as error:
        finding = str(error) or sentence(
            "it hangs: no answer within {seconds} s", seconds=f"{_SWITCH_SECONDS:g}"
        )
        advice = sentence(
            "install the switch library that belongs to the driver; one that is starting "
            "may take 90 s, so scan again"
        )
        return problem(SWITCHES, finding, advice)
    return ok(
        SWITCHES,
        counted(
            len(faults),
            "it answers and lists {count} fault",
            "it answers and lists {count} faults",
        ),
        facts={"faults": len(faults)},
    )


async def check_links(configuration: AgentConfiguration, inventory: Inventory | None) -> Check:
    """Check whether ``hccn_tool`` answers, asked about the first chip of each card."""
    if inventory is None:
        return not_applicable(LINKS, sentence("without the driver no chip is known to ask about"))
    family = FAMILIES.get(inventory.family)
    if family is None or not family.has_network:
        return not_applicable(
            LINKS, sentence("an {family} chip has no network of its own", family=inventory.family)
        )
    paths = VendorPaths(configuration.driver_root, configuration.trust_driver, os.environ)
    tool = HccnTool(paths)
    cards: dict[int, Chip] = {}
    for chip in inventory.chips:
        cards.setdefault(chip.card_id, chip)
    down, failed = [], []
    seconds = configuration.settings_of(LinksSection).deadline_seconds
    end = asyncio.get_running_loop().time() + _LINKS_SECONDS
    for chip in cards.values():
        # One limit for all cards, because each of them may use up its own deadline.
        remaining_seconds = end - asyncio.get_running_loop().time()
        if remaining_seconds <= 0:
            failed.append(sentence("no time was left to ask about {chip}", chip=chip))
            break
        try:
            faults = await check_once(
                tool,
                inventory.family,
                chip,
                min(seconds, remaining_seconds),
                counts_uboe=counts_uboe(inventory),
            )
            if any(faults.values()):
                down.append(family.device_name(chip.physical_id))
        except ToolMissing as error:
            advice = sentence(
                "install the driver's tools, or name its place with --driver-root; until "
                "then links are blind"
            )
            return problem(LINKS, str(error), advice)
        except ToolSilent as error:
            failed.append(sentence("it hangs: {reason}", reason=str(error)))
        except ToolError as error:
            failed.append(str(error))
    facts: dict[str, object] = {"cards": len(cards), "down": down, "failed": failed}
    if failed:
        advice = sentence(
            "run {path} by hand as root; no other user may run it at the same time", path=tool.path
        )
        return problem(LINKS, joined("{before}; {part}", failed), advice, facts=facts)
    finding = counted(
        len(cards),
        "{tool} answers about {count} card",
        "{tool} answers about {count} cards",
        tool=tool.path,
    )
    if down:
        advice = sentence(
            "see cables, optical modules and the switch; the agent publishes these faults"
        )
        return warning(
            LINKS,
            sentence(
                "{finding}; links down: {chips}",
                finding=finding,
                chips=joined("{before}, {part}", down),
            ),
            advice,
            facts=facts,
        )
    return ok(LINKS, sentence("{finding}; links all up", finding=finding), facts=facts)
