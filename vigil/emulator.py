"""``vigil emulator``: build, start and show the emulated driver."""

from __future__ import annotations

from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contract.plural import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from contract.codes.levels import Severity
    from dcmi_shim.emulator.control import Emulator

app = typer.Typer(help="Emulated driver: build, start, status.", no_args_is_help=True)

EmulatorDir = Annotated[
    Path | None,
    typer.Option(envvar="VIGIL_EMULATOR_DIR", help="Where the emulated hardware's state lives."),
]
Profile = Annotated[
    str | None,
    typer.Option(
        help="a2 (8 x 910B3, default), a3 (16 dies, switches), 910a, 310p, 310, duo or a5."
    ),
]


@contextmanager
def open_emulator(emulator_dir: Path | None) -> Iterator[Emulator]:
    """Open the emulator of the command line. Raises ``ConfigurationError`` without one."""
    from contract.errors import ConfigurationError, Problem
    from contract.sentences import sentence
    from dcmi_shim.emulator.control import Emulator

    if emulator_dir is None:
        text = sentence("is missing; set VIGIL_EMULATOR_DIR or give the option")
        raise ConfigurationError("command line", [Problem("--emulator-dir", text)])
    with closing(Emulator(emulator_dir)) as emulator:
        yield emulator


def change_emulator(emulator_dir: Path | None, change: Callable[[Emulator], None]) -> None:
    """Open the emulator of the command line for one change. Raises ``ConfigurationError``."""
    with open_emulator(emulator_dir) as emulator:
        change(emulator)


def severity_named(word: str) -> Severity:
    """Return the severity of the command line. Raises ``ConfigurationError`` for no such word."""
    from contract.codes.levels import Severity
    from contract.errors import ConfigurationError, Problem
    from contract.sentences import joined, sentence

    words = {severity.word: severity for severity in Severity}
    if word.lower() not in words:
        text = sentence(
            "{value} is none of {values}",
            value=repr(word),
            values=joined("{before}, {part}", words),
        )
        raise ConfigurationError("command line", [Problem("--severity", text)])
    return words[word.lower()]


@app.command()
def install(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The driver root to make.")],
    profile: Profile = None,
    emulator_dir: EmulatorDir = None,
) -> None:
    """Build the emulated driver into DIR and start it.

    The state goes to DIR/emulator unless VIGIL_EMULATOR_DIR or --emulator-dir names another.
    """
    from dcmi_shim.emulator.install import (
        HCCN_TOOL,
        IPMI_PRELOAD,
        IPMITOOL,
        LIBRARY,
        SWITCH_LIBRARY,
    )
    from dcmi_shim.emulator.install import install as build

    state = emulator_dir if emulator_dir is not None else directory / "emulator"
    build(directory, state, profile if profile is not None else "a2")
    print(f"library  {directory.absolute() / LIBRARY}")
    if (directory / SWITCH_LIBRARY).exists():
        print(f"         {directory.absolute() / SWITCH_LIBRARY}")
    print(f"tools    {directory.absolute() / HCCN_TOOL}")
    print(f"         {directory.absolute() / IPMITOOL} (put its directory on PATH)")
    print(f"preload  {directory.absolute() / IPMI_PRELOAD} (is /dev/ipmi0)")
    print(f"state    {state.absolute()}")
    print(f"to change the hardware: export VIGIL_EMULATOR_DIR={state.absolute()}")


@app.command()
def start(
    profile: Profile = None,
    scenario: Annotated[
        Path | None, typer.Option(help="Play this scenario after the start, until its end.")
    ] = None,
    emulator_dir: EmulatorDir = None,
) -> None:
    """Make the hardware new and healthy, and play a scenario.

    The driver may have been installed for another directory: VIGIL_EMULATOR_DIR wins over that.
    """
    from contract.errors import ConfigurationError, Problem
    from dcmi_shim.emulator.install import ensure_control
    from dcmi_shim.emulator.scenario import play, read_scenario

    given = None if scenario is None else read_scenario(scenario)
    if given is not None and profile not in (None, given.profile):
        text = f"is {profile!r}, but {scenario} was written for {given.profile!r}"
        raise ConfigurationError("command line", [Problem("--profile", text)])
    if emulator_dir is not None:
        ensure_control(emulator_dir)
    with open_emulator(emulator_dir) as emulator:
        emulator.start(given.profile if given is not None else profile or "a2")
        if given is not None:
            play(given, emulator)


@app.command()
def status(
    as_json: Annotated[bool, typer.Option("--json", help="Everything, for machines.")] = False,
    emulator_dir: EmulatorDir = None,
) -> None:
    """Show what the emulated hardware is like now."""
    import json

    with open_emulator(emulator_dir) as emulator:
        now = emulator.status()
    print(json.dumps(now, indent=2) if as_json else "\n".join(_lines(now)))


def _lines(now: dict[str, Any]) -> Generator[str]:
    yield f"profile {now['profile']}, {plural(now['events'], 'event')} so far"
    for chip in now["chips"]:
        words = [f"health {chip['health']}"]
        if chip["dropped"] is not None:
            words.append(f"dropped ({chip['dropped']})")
        if chip["link"] != "up":
            words.append(f"link {chip['link']}")
        words += [f"{fault['code']} severity {fault['severity']}" for fault in chip["active"]]
        place = f"chip {chip['chip']:>2}  card {chip['card']} device {chip['device']}"
        yield f"{place}  {', '.join(words)}"
    for reader in now["subscribers"]:
        yield f"subscriber {_reader(reader)}"
    if now["switch"] is not None:
        yield from _switch_lines(now["switch"])
    for hook in now["hooks"]:
        where = "every chip" if hook["chip"] is None else f"chip {hook['chip']}"
        states = ["hangs"] if hook["hang"] else []
        states += [f"{hook['slow_ms']} ms slower"] if hook["slow_ms"] else []
        states += [f"answers {hook['return_code']}"] if hook["return_code"] else []
        yield f"{hook['function']} on {where}: {', '.join(states)}"
    for tool in now["tools"]:
        where = "every run" if tool["chip"] is None else f"runs for chip {tool['chip']}"
        states = [word for word in ("hang", "garble", "busy", "other_chip") if tool[word]]
        states += [f"{tool['slow_ms']} ms slower"] if tool["slow_ms"] else []
        failing = f"exit status {tool['exit_status']} {tool['text']}".rstrip()
        states += [failing] if tool["exit_status"] else []
        yield f"{tool['tool']}, {where}: {', '.join(states).replace('_', '-')}"
    yield from _bmc_lines(now["bmc"])
    if now["concurrent_calls"]:
        calls = plural(now["concurrent_calls"], "call")
        yield f"{calls} while another thread of the same process was in one"


def _bmc_lines(bmc: dict[str, Any]) -> Generator[str]:
    from contract.codes.bmc_device_types import device_type

    words = ["present" if bmc["present"] else "absent", plural(len(bmc["alarms"]), "alarm")]
    words += [f"hangs ({bmc['hang']})"] if bmc["hang"] else []
    words += [f"{bmc['delay_ms']} ms slower"] if bmc["delay_ms"] else []
    words += [f"completion code {bmc['completion_code']:02X}"] if bmc["completion_code"] else []
    words += [f"{bmc['played_replies']} played replies"] if bmc["played_replies"] else []
    yield f"BMC  {', '.join(words)}"
    for alarm in bmc["alarms"]:
        place = f"{device_type(alarm['type'])} {alarm['index']}"
        yield f"BMC  {alarm['code']} on {place} severity {alarm['severity']}"


def _reader(reader: dict[str, Any]) -> str:
    return f"{reader['pid']}: {reader['waiting']} waiting, {reader['dropped']} dropped"


def _switch_lines(switch: dict[str, Any]) -> Generator[str]:
    from contract.codes.switch_codes import (
        NOT_APPLICABLE,
        SwitchCode,
        format_switch_code,
        sub_type_of,
    )

    for fault in switch["faults"]:
        code = SwitchCode(fault["event_type"], sub_type_of(fault["sub_type"]), fault["peer"])
        port = fault["port"]
        place = "whole chip" if port == NOT_APPLICABLE else f"port {port}"
        yield (
            f"switch chip {fault['chip']} {place}  {format_switch_code(code)} "
            f"peer port {fault['peer_port']} severity {fault['severity']}"
        )
    for reader in switch["processes"]:
        yield f"switch process {_reader(reader)}"
