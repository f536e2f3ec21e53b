"""Checks of the switch library, of ``hccn_tool``, and of the BMC with its kernel modules."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from collectors.bmc import BmcSection
from collectors.links.collector import LinksSection
from collectors.switch import WITH_SWITCHES
from contract.codes.families import FAMILIES
from contract.counted import counted
from contract.errors import (
    BmcError,
    DriverError,
    ForeignBmc,
    ToolError,
    ToolMissing,
    ToolSilent,
)
from dcmi_shim.hccn.tool import A5_PORTS, LINK, HccnTool
from dcmi_shim.ipmi.bmc import Ipmi
from dcmi_shim.ipmi.tool import NAME as IPMITOOL
from dcmi_shim.library.discovery import VendorPaths, find_library
from dcmi_shim.library.vendor import LINGQU
from dcmi_shim.switch.driver import SwitchDriver
from dcmi_shim.tool import check_tool, tool_environment
from pacing.abandonable_thread import AbandonableThread
from vigil.driver_session import driver_session
from vigil.scan.findings import not_applicable, ok, problem, warning

if TYPE_CHECKING:
    from agent.config import AgentConfiguration
    from dcmi_shim.values import Chip, Inventory
from vigil.scan.findings import Check

SWITCHES, LINKS, BMC, BMC_TOOL = "switch-library", "hccn_tool", "bmc", "ipmitool"
MODULES = "kernel-modules"
_MODULES = ("ipmi_msghandler", "ipmi_si", "ipmi_devintf")
_LOADED = Path("/sys/module")
_HUAWEI = 2011
_SWITCH_SECONDS = 15.0
_LINKS_SECONDS = 30.0
_BMC_SECONDS = 20.0
_DEVICE_SECONDS = 5.0
_A5 = "Ascend910A5"


async def check_switches(configuration: AgentConfiguration, inventory: Inventory | None) -> Check:
    """Check whether the switch library of a server that has switches lists their faults."""
    if inventory is None:
        return not_applicable(SWITCHES, "the driver does not show whether there are switches")
    if inventory.family != WITH_SWITCHES:
        return not_applicable(SWITCHES, f"an {inventory.family} server has no switches on board")
    paths = VendorPaths(configuration.driver_root, configuration.trust_driver, os.environ)
    driver = SwitchDriver(lambda: find_library(paths, LINGQU), lambda: time.time_ns() // 1_000_000)
    try:
        async with driver_session(driver), asyncio.timeout(_SWITCH_SECONDS):
            faults = await driver.faults()
    except (DriverError, TimeoutError) as error:
        found = str(error) or f"it hangs: no answer within {_SWITCH_SECONDS:g} s"
        advice = (
            "install the switch library that belongs to the driver; one that is starting may take "
            "90 s, so scan again"
        )
        return problem(SWITCHES, found, advice)
    return ok(
        SWITCHES,
        f"it answers and lists {counted(len(faults), 'fault')}",
        facts={"faults": len(faults)},
    )


async def check_links(configuration: AgentConfiguration, inventory: Inventory | None) -> Check:
    """Check whether ``hccn_tool`` answers, asked about the first chip of each card."""
    if inventory is None:
        return not_applicable(LINKS, "without the driver no chip is known to ask about")
    family = FAMILIES.get(inventory.family)
    if family is None or not family.has_network:
        return not_applicable(LINKS, f"an {inventory.family} chip has no network of its own")
    paths = VendorPaths(configuration.driver_root, configuration.trust_driver, os.environ)
    tool = HccnTool(paths)
    cards: dict[int, Chip] = {}
    for chip in inventory.chips:
        cards.setdefault(chip.card_id, chip)
    down, failed = [], []
    seconds = configuration.settings_of(LinksSection).deadline_seconds
    end = asyncio.get_running_loop().time() + _LINKS_SECONDS
    for chip in cards.values():
        left = end - asyncio.get_running_loop().time()
        if left <= 0:
            failed.append(f"no time was left to ask about {chip}")
            break
        try:
            if not await _is_up(tool, inventory.family, chip, min(seconds, left)):
                down.append(family.device_name(chip.physical_id))
        except ToolMissing as error:
            advice = (
                "install the driver's tools, or name its place with --driver-root; until then "
                "links are blind"
            )
            return problem(LINKS, str(error), advice)
        except ToolSilent as error:
            failed.append(f"it hangs: {error}")
        except ToolError as error:
            failed.append(str(error))
    facts: dict[str, object] = {"cards": len(cards), "down": down, "failed": failed}
    if failed:
        advice = f"run {tool.path} by hand as root; no other user may run it at the same time"
        return problem(LINKS, "; ".join(failed), advice, facts=facts)
    found = f"{tool.path} answers about {counted(len(cards), 'card')}; links "
    if down:
        advice = "see cables, optical modules and the switch; the agent publishes these faults"
        return warning(LINKS, f"{found}down: {', '.join(down)}", advice, facts=facts)
    return ok(LINKS, f"{found}all up", facts=facts)


async def _is_up(tool: HccnTool, family: str, chip: Chip, seconds: float) -> bool:
    if family == _A5:
        return all(port.up for port in await tool.ask_a5(A5_PORTS, chip.logic_id, seconds))
    return await tool.ask(LINK, chip.physical_id, seconds)


async def check_bmc(configuration: AgentConfiguration) -> tuple[Check, ...]:
    """Check whether the BMC lists its alarms by the way that the agent would take."""
    settings = configuration.settings_of(BmcSection)
    if not settings.enabled:
        names = (BMC, BMC_TOOL, MODULES)
        return tuple(not_applicable(name, "bmc.enabled is false") for name in names)
    device = Path(settings.device)
    has_device = await AbandonableThread(device.exists, "scan").result(_DEVICE_SECONDS)
    tool = _bmc_tool(device if has_device else None, trust=configuration.trust_driver)
    paths = VendorPaths(configuration.driver_root, configuration.trust_driver, os.environ)
    ipmi = Ipmi(device, paths, settings.deadline_seconds)
    way = str(device) if has_device else IPMITOOL
    try:
        async with asyncio.timeout(_BMC_SECONDS):
            alarms = await ipmi.alarms(None)
            serial = await ipmi.serial_number()
    except ForeignBmc as error:
        foreign = await _foreign(ipmi, f"by {way}: {error.answer}", way)
        return (foreign, tool, not_applicable(MODULES, "the BMC answers without more of them"))
    except (BmcError, ToolError, TimeoutError) as error:
        found = str(error) or f"the list of alarms is not complete within {_BMC_SECONDS:g} s"
        advice = (
            "modprobe ipmi_si ipmi_devintf, or install ipmitool; where the server has no BMC: "
            "bmc.enabled = false"
        )
        if has_device:
            advice = "run as root; a BMC that does not answer may need a restart of its own"
        silent = problem(BMC, f"by {way}: {found}", advice, facts={"way": way})
        return (silent, tool, _modules(settings))
    modules = _modules(settings)
    found = f"{len(alarms)} active alarms, serial number {serial or 'unknown'}, read by {way}"
    facts = {"way": way, "alarms": len(alarms), "serial_number": serial}
    if alarms:
        return (warning(BMC, found, "see the BMC's list of alarms", facts), tool, modules)
    return (ok(BMC, found, facts=facts), tool, modules)


async def _foreign(ipmi: Ipmi, found: str, way: str) -> Check:
    """Return the check of a BMC without Huawei's command, with its maker where it names one."""
    try:
        async with asyncio.timeout(_BMC_SECONDS):
            maker = await ipmi.manufacturer()
    except (BmcError, ToolError, TimeoutError):
        maker = None
    facts: dict[str, object] = {"way": way, "manufacturer": maker}
    if maker == _HUAWEI:
        found = f"Huawei's BMC without the list of alarms, {found}"
        advice = "update the firmware of the BMC; until then: bmc.enabled = false"
        return problem(BMC, found, advice, facts=facts)
    named = "" if maker is None else f" but of manufacturer {maker} (Huawei is {_HUAWEI})"
    found = f"the BMC is not Huawei's{named}, {found}"
    advice = (
        "set bmc.enabled = false: only the alarms of Huawei's BMCs can be read; watch this one by "
        "its maker's tools"
    )
    return problem(BMC, found, advice, facts=facts)


def _modules(settings: BmcSection) -> Check:
    """Return a hint for an unreachable BMC; a driver built into the kernel is no module."""
    loaded = [name for name in _MODULES if (_LOADED / name).is_dir()]
    missing = [name for name in _MODULES if name not in loaded]
    found = f"loaded: {', '.join(loaded) or 'none'}"
    if not missing:
        return ok(MODULES, found, facts={"loaded": loaded})
    advice = (
        f"modprobe {' '.join(missing)} makes {settings.device} on a server with a BMC; "
        "write them to /etc/modules-load.d/ipmi.conf to have them after a restart"
    )
    found = f"{found}; not loaded: {', '.join(missing)}"
    return ok(MODULES, found, advice, facts={"loaded": loaded, "missing": missing})


def _bmc_tool(device: Path | None, *, trust: bool) -> Check:
    path = shutil.which(IPMITOOL, path=tool_environment(os.environ)["PATH"])
    if path is None:
        if device is not None:
            return not_applicable(BMC_TOOL, f"there is none, and {device} needs none")
        advice = "install ipmitool, or load the kernel modules ipmi_si and ipmi_devintf"
        return warning(BMC_TOOL, "there is neither a device of the BMC nor ipmitool", advice)
    try:
        check_tool(Path(path), trust_driver=trust)
    except ToolMissing as error:
        if device is not None:
            return not_applicable(BMC_TOOL, f"{error}; {device} needs none")
        return problem(BMC_TOOL, str(error), "let root own it and its directories")
    return ok(BMC_TOOL, path if device is None else f"{path}, not needed beside {device}")
