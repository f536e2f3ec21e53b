"""Parts of this host: versions, configuration, log, kernel, tools and rights."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import platform
import re
import shutil
import stat
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from collectors.bmc import BmcSection
from collectors.kernel_log.collector import KernelLogSection
from collectors.kernel_log.device import DEFAULT_DEVICE, opened
from contract.errors import StoreUnavailable, ToolError, ToolSilent, VigilError
from contract.settings import Section
from dcmi_shim.hccn import tool as hccn
from dcmi_shim.ipmi.bmc import Ipmi
from dcmi_shim.library.discovery import DEFAULT_DRIVER_ROOT, VendorPaths
from dcmi_shim.tool import tool_environment
from vigil.daemon_client import OK, DaemonClient
from vigil.sources.sources import AGENT_PLACE
from vigil.support.part import NotApplicable

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from vigil.support.part import PartContents
    from vigil.support.place import SupportPlace

_PACKAGES = ("npu-vigil", "aiohttp", "grpcio", "msgspec", "pydantic", "typer", "aiomqtt")
_RELEASE_KEYS = ("ID", "VERSION_ID", "PRETTY_NAME")
_UNITS = ("npu-vigil-agent.service", "npu-vigil-aggregator.service", "npu-vigil-elastic.service")
_LOG_SECONDS = 20.0
_MAX_LOG_LINES = 50_000
_MAX_RECORD_BYTES = 8192
_MAX_RECORDS = 200_000
_DRIVER_LINE = re.compile(
    r"\[ascend\]|davinci|hisi|devdrv|\bdrv_|\bnpu\b|\bhccs|pcieport|\bAER\b|ipmi|hardware error|"
    r"\bmce\b|\bedac\b",
    re.IGNORECASE,
)
_TOOL_SECONDS = 3.0
_MAX_SILENT = 3
"""One chip may hang; a tool that hangs for all of them must not be asked 80 times."""
_TOOL_QUESTIONS = (
    ("-link", "-g"),
    ("-speed", "-g"),
    ("-link_stat", "-g"),
    ("-optical", "-g"),
    ("-stat", "-g"),
)
_A5_QUESTIONS = (("-dev_info",), ("-port_info",), ("-stat",))
_PRIVATE_KEYS = frozenset({"mqtt.user"})
"""Declared settings that are shown as set or not set only."""


def collect_versions(place: SupportPlace, into: PartContents) -> None:
    """Add versions of our packages, Python, the kernel, the system and the driver."""
    packages = {}
    for package in _PACKAGES:
        try:
            packages[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            packages[package] = "not installed"
    root = _driver_root(place)
    driver = root / "version.info"
    into.json(
        "versions",
        {
            "packages": packages,
            "python": platform.python_version(),
            "kernel": platform.release(),
            "machine": platform.machine(),
            "system": _system(),
            "driver_root": str(root),
            "driver": driver.read_text(errors="replace")[:4096] if driver.is_file() else None,
        },
    )


def _system() -> dict[str, str]:
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return {}
    return {key: release[key] for key in _RELEASE_KEYS if key in release}


def _driver_root(place: SupportPlace) -> Path:
    given = None if place.agent is None else place.agent.driver_root
    return DEFAULT_DRIVER_ROOT if given is None else given


def collect_configuration(place: SupportPlace, into: PartContents) -> None:
    """Add the settings in force, by the keys that are declared, and names of our variables."""
    for daemon, model in (("agent", place.agent), ("aggregator", place.aggregator)):
        file = place.agent_file if daemon == "agent" else place.aggregator_file
        shown: dict[str, object] = {"file": None if file is None else str(file)}
        if model is not None:
            shown["settings"] = _settings(model, "")
        if daemon in place.refused:
            shown["refused_keys"] = place.refused[daemon]
            into.problems.append(f"the configuration of the {daemon} is refused")
        into.json(f"configuration/{daemon}", shown)
    names = sorted(name for name in os.environ if name.startswith("VIGIL_") or name == "NODE_NAME")
    into.json("configuration/environment-names", names)


def _settings(section: Section, above: str) -> dict[str, object]:
    """Return the declared settings of ``section``; what a file has beside them is never there."""
    result: dict[str, object] = {}
    for key, value in msgspec.structs.asdict(section).items():
        if isinstance(value, Section):
            result[key] = _settings(value, f"{above}{key}.")
        elif f"{above}{key}" in _PRIVATE_KEYS:
            result[key] = None if value is None else "(set)"
        else:
            result[key] = msgspec.to_builtins(value, enc_hook=str)
    return result


def collect_log(place: SupportPlace, into: PartContents) -> None:
    """Add the log of our units, and of our pods where there is a kubeconfig."""
    if place.kubeconfig is not None:
        from vigil.support.cluster_parts import add_pod_logs

        add_pod_logs(place, into)
    program = shutil.which("journalctl", path=tool_environment(os.environ)["PATH"])
    if program is None or not Path("/run/systemd/system").is_dir():
        if place.kubeconfig is None:
            missing = "journalctl is not installed" if program is None else "systemd does not run"
            raise NotApplicable(f"{missing}, and there is no kubeconfig to read logs of pods")
        return
    units = [word for unit in _UNITS for word in ("-u", unit)]
    try:
        done = subprocess.run(
            [
                *(program, "--no-pager", "--since=-24h", "-o", "short-iso-precise"),
                *("-n", str(_MAX_LOG_LINES), *units),
            ],
            env=tool_environment(os.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LOG_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        into.text("log/units", (error.stdout or b"").decode(errors="replace"))
        raise StoreUnavailable(f"journalctl gives no answer in {_LOG_SECONDS:g} s") from None
    into.text("log/units", done.stdout.decode(errors="replace"))
    if done.returncode != 0:
        into.problems.append(
            f"journalctl ended with {done.returncode}: {done.stderr.decode(errors='replace')[:400]}"
        )


def collect_kernel(place: SupportPlace, into: PartContents) -> None:
    """Add the lines of the kernel's log about the driver and the hardware."""
    device = DEFAULT_DEVICE
    if place.agent is not None:
        device = place.agent.settings_of(KernelLogSection).device
    lines: list[str] = []
    with opened(device) as log:
        if log.is_pipe:
            raise NotApplicable(f"{device} is a pipe, which only the agent may read")
        # Bounded: a kernel that logs without a pause is never read to its end.
        for _ in range(_MAX_RECORDS):
            try:
                record = os.read(log.descriptor, _MAX_RECORD_BYTES)
            except BlockingIOError:
                break
            except BrokenPipeError:  # overwritten before it was read
                continue
            line = record.decode(errors="replace").partition("\n")[0]
            if _DRIVER_LINE.search(line):
                lines.append(line)
    into.text("kernel", "".join(f"{line}\n" for line in lines))


def collect_hccn(place: SupportPlace, into: PartContents) -> None:
    """Add what ``hccn_tool`` prints about each chip, and how long each call takes."""
    chips, family = _chips(place)
    tool = hccn.HccnTool(_paths(place))
    if not tool.path.exists():
        raise NotApplicable(f"there is no {tool.path}")
    if not chips:
        raise NotApplicable("no chip is known: neither of an agent nor as /dev/davinci")
    asyncio.run(_ask_hccn(tool, chips, family, into))


async def _ask_hccn(tool: hccn.HccnTool, chips: list[int], family: str, into: PartContents) -> None:
    answers: list[object] = []
    is_a5 = "950" in family
    # Kept at once: a tool that hangs must not take earlier answers with it.
    into.lines("hccn_tool", answers)
    silent = 0
    for chip in chips:
        for words in _A5_QUESTIONS if is_a5 else _TOOL_QUESTIONS:
            question = hccn.ToolQuestion(words, lambda text, _: text)
            begun = time.monotonic()
            entry: dict[str, object] = {"chip": chip, "question": " ".join(words)}
            try:
                query = tool.query_a5 if is_a5 else tool.query
                entry["answer"] = await query(question, chip, _TOOL_SECONDS)
            except ToolError as error:
                entry["problem"] = str(error)
                silent += isinstance(error, ToolSilent)
                into.problems = ["some questions have no answer; the file shows which"]
            entry["seconds"] = round(time.monotonic() - begun, 3)
            answers.append(entry)
            if silent == _MAX_SILENT:
                into.problems = [f"it hangs: {silent} questions without an answer, none after them"]
                return


def _chips(place: SupportPlace) -> tuple[list[int], str]:
    """Return physical ids and family, from the agent, else from the device files."""
    path = (place.state_dir or AGENT_PLACE[0]) / AGENT_PLACE[1]
    try:
        status, body = DaemonClient(f"unix:{path}", _TOOL_SECONDS).fetch("/api/v1/status")
        page = msgspec.json.decode(body) if status == OK else {}
        family = page.get("driver", {}).get("family") or ""
        return [chip["chip"] for chip in page["chips"]], family
    except (VigilError, OSError, LookupError, TypeError, AttributeError, msgspec.MsgspecError):
        names = (path.name.removeprefix("davinci") for path in Path("/dev").glob("davinci*"))
        return sorted(int(name) for name in names if name.isdecimal()), ""


def _paths(place: SupportPlace) -> VendorPaths:
    agent = place.agent
    if agent is None:
        return VendorPaths(None, False, os.environ)
    return VendorPaths(agent.driver_root, agent.trust_driver, os.environ)


def collect_bmc(place: SupportPlace, into: PartContents) -> None:
    """Add the active alarms of the BMC and the serial number of the server."""
    section = BmcSection() if place.agent is None else place.agent.settings_of(BmcSection)
    if not section.enabled:
        raise NotApplicable("bmc.enabled is false")
    device = Path(section.device)
    path = tool_environment(os.environ)["PATH"]
    if not device.exists() and shutil.which("ipmitool", path=path) is None:
        raise NotApplicable(f"there is neither {device} nor ipmitool")
    asyncio.run(_ask_bmc(Ipmi(device, _paths(place), section.deadline_seconds), into))


async def _ask_bmc(ipmi: Ipmi, into: PartContents) -> None:
    answers: dict[str, object] = {}
    # Added while empty, so that a BMC that hangs takes no earlier answer with it.
    into.json("bmc", answers)

    async def ask(name: str, answer: Awaitable[object]) -> None:
        begun = time.monotonic()
        try:
            answers[name] = msgspec.to_builtins(await answer, enc_hook=repr)
        except VigilError as error:
            into.problems.append(f"{name}: {error}")
        answers[f"{name}_seconds"] = round(time.monotonic() - begun, 3)

    await ask("alarms", ipmi.alarms(None))
    await ask("serial_number", ipmi.serial_number())
    # Only where it explains the failure: a BMC of another maker lists no alarms for us.
    if "alarms" not in answers:
        await ask("manufacturer", ipmi.manufacturer())


def collect_rights(place: SupportPlace, into: PartContents) -> None:
    """Add modes and owners of the files that we use, and what the kubeconfig's user may do."""
    root = _driver_root(place)
    paths = [place.agent_state_dir, root, root / "tools" / hccn.NAME, Path(DEFAULT_DEVICE)]
    paths += [file for file in (place.agent_file, place.aggregator_file) if file is not None]
    if place.agent_state_dir.is_dir():
        paths += sorted(place.agent_state_dir.iterdir())[:200]
    paths += sorted(Path("/dev").glob("davinci*")) + sorted(Path("/dev").glob("ipmi*"))
    into.json(
        "rights/files",
        {
            "uid": os.geteuid(),
            "gid": os.getegid(),
            "files": {str(path): _mode(path) for path in paths},
        },
    )
    if place.kubeconfig is not None:
        from vigil.support.cluster_parts import add_rules

        add_rules(place, into)


def _mode(path: Path) -> dict[str, object] | str:
    try:
        status = path.lstat()
    except OSError as error:
        return error.strerror or type(error).__name__
    return {
        "mode": stat.filemode(status.st_mode),
        "uid": status.st_uid,
        "gid": status.st_gid,
        "bytes": status.st_size,
    }
