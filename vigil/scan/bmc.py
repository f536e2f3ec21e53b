"""Checks of the BMC: whether it lists its alarms, by its device or by ``ipmitool``."""

from __future__ import annotations

import asyncio
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from collectors.bmc import BmcSection
from contract.errors import BmcError, ForeignBmc, ToolError, ToolMissing
from contract.sentences import joined, sentence
from dcmi_shim.ipmi.bmc import Ipmi
from dcmi_shim.ipmi.tool import NAME as IPMITOOL
from dcmi_shim.library.discovery import VendorPaths
from dcmi_shim.tool import check_tool, tool_environment
from pacing.abandonable_thread import AbandonableThread
from vigil.scan.findings import not_applicable, ok, problem, warning

if TYPE_CHECKING:
    from agent.config import AgentConfiguration
    from vigil.scan.findings import Check

BMC, BMC_TOOL, MODULES = "bmc", "ipmitool", "kernel-modules"
_MODULES = ("ipmi_msghandler", "ipmi_si", "ipmi_devintf")
_LOADED = Path("/sys/module")
_HUAWEI = 2011
_BMC_SECONDS = 20.0
_DEVICE_SECONDS = 5.0


async def check_bmc(configuration: AgentConfiguration) -> tuple[Check, ...]:
    """Check whether the BMC lists its alarms by the way that the agent would take."""
    settings = configuration.settings_of(BmcSection)
    if not settings.enabled:
        names = (BMC, BMC_TOOL, MODULES)
        return tuple(not_applicable(name, sentence("bmc.enabled is false")) for name in names)
    device = Path(settings.device)
    has_device = await AbandonableThread(device.exists, "scan").result(_DEVICE_SECONDS)
    tool = _bmc_tool(device if has_device else None, trust=configuration.trust_driver)
    paths = VendorPaths(configuration.driver_root, configuration.trust_driver, os.environ)
    ipmi = Ipmi(device, paths, settings.deadline_seconds)
    way = str(device) if has_device else IPMITOOL
    try:
        async with asyncio.timeout(_BMC_SECONDS):
            alarms = await ipmi.alarms(None)
            serial = None
            with suppress(BmcError, ToolError):  # the agent reads alarms without it, too
                serial = await ipmi.serial_number()
    except ForeignBmc as error:
        foreign = await _foreign(
            ipmi, sentence("by {way}: {reason}", way=way, reason=error.answer), way
        )
        return (
            foreign,
            tool,
            not_applicable(MODULES, sentence("the BMC answers without more of them")),
        )
    except (BmcError, ToolError, TimeoutError) as error:
        finding = str(error) or sentence(
            "the list of alarms is not complete within {seconds} s", seconds=f"{_BMC_SECONDS:g}"
        )
        advice = sentence(
            "modprobe ipmi_si ipmi_devintf, or install ipmitool; where the server has no "
            "BMC: bmc.enabled = false"
        )
        if has_device:
            advice = sentence(
                "run as root; a BMC that does not answer may need a restart of its own"
            )
        silent = problem(
            BMC,
            sentence("by {way}: {reason}", way=way, reason=finding),
            advice,
            facts={"way": way},
        )
        return (silent, tool, _modules(settings))
    modules = _modules(settings)
    finding = sentence(
        "{alarms} active alarms, serial number {serial}, read by {way}",
        alarms=len(alarms),
        serial=serial or sentence("unknown"),
        way=way,
    )
    facts = {"way": way, "alarms": len(alarms), "serial_number": serial}
    if alarms:
        return (
            warning(BMC, finding, sentence("see the BMC's list of alarms"), facts),
            tool,
            modules,
        )
    return (ok(BMC, finding, facts=facts), tool, modules)


async def _foreign(ipmi: Ipmi, result: str, way: str) -> Check:
    """Return the check of a BMC without Huawei's command, with its maker where it names one."""
    try:
        async with asyncio.timeout(_BMC_SECONDS):
            maker = await ipmi.manufacturer()
    except (BmcError, ToolError, TimeoutError):
        maker = None
    facts: dict[str, object] = {"way": way, "manufacturer": maker}
    if maker == _HUAWEI:
        result = sentence("Huawei's BMC without the list of alarms, {result}", result=result)
        advice = sentence("update the firmware of the BMC; until then: bmc.enabled = false")
        return problem(BMC, result, advice, facts=facts)
    if maker is None:
        result = sentence("the BMC is not Huawei's, {result}", result=result)
    else:
        result = sentence(
            "the BMC is not Huawei's but of manufacturer {maker} (Huawei is {huawei}), {result}",
            maker=maker,
            huawei=_HUAWEI,
            result=result,
        )
    advice = sentence(
        "set bmc.enabled = false: only the alarms of Huawei's BMCs can be read; "
        "watch this one by its maker's tools"
    )
    return problem(BMC, result, advice, facts=facts)


def _modules(settings: BmcSection) -> Check:
    """Return a hint for an unreachable BMC; a driver built into the kernel is not a module."""
    loaded = [name for name in _MODULES if (_LOADED / name).is_dir()]
    missing = [name for name in _MODULES if name not in loaded]
    finding = sentence(
        "loaded: {loaded}", loaded=joined("{before}, {part}", loaded or [sentence("none")])
    )
    if not missing:
        return ok(MODULES, finding, facts={"loaded": loaded})
    advice = sentence(
        "modprobe {missing} makes {device} on a server with a BMC; write them to "
        "/etc/modules-load.d/ipmi.conf to have them after a restart",
        missing=" ".join(missing),
        device=settings.device,
    )
    finding = sentence(
        "{finding}; not loaded: {missing}",
        finding=finding,
        missing=joined("{before}, {part}", missing),
    )
    return ok(MODULES, finding, advice, facts={"loaded": loaded, "missing": missing})


def _bmc_tool(device: Path | None, *, trust: bool) -> Check:
    # On the path that the agent gives its tools.
    path = shutil.which(IPMITOOL, path=tool_environment(os.environ)["PATH"])
    if path is None:
        if device is not None:
            return not_applicable(
                BMC_TOOL, sentence("there is none, and {device} needs none", device=device)
            )
        advice = sentence("install ipmitool, or load the kernel modules ipmi_si and ipmi_devintf")
        return warning(
            BMC_TOOL, sentence("there is neither a device of the BMC nor ipmitool"), advice
        )
    try:
        check_tool(Path(path), trust_driver=trust)
    except ToolMissing as error:
        if device is not None:
            return not_applicable(BMC_TOOL, f"{error}; {device} needs none")
        return problem(BMC_TOOL, str(error), sentence("let root own it and its directories"))
    return ok(
        BMC_TOOL,
        path
        if device is None
        else sentence("{path}, not needed beside {device}", path=path, device=device),
    )
