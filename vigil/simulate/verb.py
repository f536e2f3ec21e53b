"""``vigil simulate``: change the emulated hardware."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vigil.emulator import EmulatorDir, change_emulator, open_emulator, severity_named
from vigil.simulate import bmc as simulate_bmc
from vigil.simulate import dpu as simulate_dpu

if TYPE_CHECKING:
    from contract.codes.levels import Severity
    from dcmi_shim.emulator.switch_faults import EmulatedSwitchFault

app = typer.Typer(help="Change the emulated hardware.", no_args_is_help=True)
app.add_typer(simulate_bmc.app, name="bmc")
app.add_typer(simulate_dpu.app, name="dpu")

Chip = Annotated[int, typer.Argument(metavar="CHIP", help="Physical id.")]
Code = Annotated[str, typer.Argument(metavar="CODE", help="Fault code, as 80E01801.")]
Function = Annotated[
    str, typer.Argument(metavar="FUNCTION", help="Driver function, with or without dcmi_.")
]
OnChip = Annotated[int | None, typer.Option("--chip", help="Only on this chip (physical id).")]
ScenarioFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="A scenario (docs/scenarios.md).")
]
SeverityWord = Annotated[
    str | None,
    typer.Option(
        "--severity", help="suggestion, minor, major or critical; default: that of the driver."
    ),
]


switch = typer.Typer(help="Faults of the on-board switches (a3).", no_args_is_help=True)
app.add_typer(switch, name="switch")

SwitchCode = Annotated[
    str,
    typer.Argument(
        metavar="CODE", help="As '[0x00f1fef5,155912,cpu,na]', or an event type as 0x00f1fef5."
    ),
]
SubType = Annotated[
    str | None, typer.Argument(metavar="[SUB_TYPE]", help="With an event type; na for none.")
]
SwitchChip = Annotated[int, typer.Option("--chip", help="Switch chip, 0 to 6.")]
SwitchPort = Annotated[
    int | None, typer.Option("--port", help="Port, 0 to 47; default: the whole switch chip.")
]
Peer = Annotated[str | None, typer.Option("--peer", help="With an event type: cpu, npu, l2 or na.")]
PeerPort = Annotated[int, typer.Option("--peer-port", help="Port of the peer.")]
SwitchSeverity = Annotated[
    str | None,
    typer.Option("--severity", help="suggestion, minor, major or critical; default: major."),
]


def _switch_fault(
    code: str, sub_type: str | None, peer: str | None, chip: int, port: int | None, peer_port: int
) -> EmulatedSwitchFault:
    from contract.codes.switch_codes import NOT_APPLICABLE
    from contract.errors import ConfigurationError, Problem
    from dcmi_shim.emulator.switch_faults import EmulatedSwitchFault, code_of

    try:
        switch_code = code_of(code, sub_type, peer)
        return EmulatedSwitchFault(
            switch_code, chip, NOT_APPLICABLE if port is None else port, peer_port
        )
    except ValueError as error:
        raise ConfigurationError("command line", [Problem("switch", str(error))]) from None


class LinkState(StrEnum):
    """What a link can be."""

    UP = "up"
    DOWN = "down"


class Traffic(StrEnum):
    """What goes over a link that is up."""

    FLOWING = "flowing"
    STILL = "still"


def _severity(word: str | None) -> Severity | None:
    return None if word is None else severity_named(word)


@app.command()
def occur(
    chip: Chip, code: Code, severity: SeverityWord = None, emulator_dir: EmulatorDir = None
) -> None:
    """Raise a fault on a chip."""
    change_emulator(emulator_dir, lambda emulator: emulator.occur(chip, code, _severity(severity)))


@app.command()
def recover(chip: Chip, code: Code, emulator_dir: EmulatorDir = None) -> None:
    """End a fault of a chip."""
    change_emulator(emulator_dir, lambda emulator: emulator.recover(chip, code))


@app.command()
def once(
    chip: Chip, code: Code, severity: SeverityWord = None, emulator_dir: EmulatorDir = None
) -> None:
    """Send a one-off event, after which no recovery follows."""
    change_emulator(emulator_dir, lambda emulator: emulator.once(chip, code, _severity(severity)))


@switch.command(name="occur")
def switch_occur(
    code: SwitchCode,
    chip: SwitchChip,
    sub_type: SubType = None,
    port: SwitchPort = None,
    peer: Peer = None,
    peer_port: PeerPort = 0,
    severity: SwitchSeverity = None,
    emulator_dir: EmulatorDir = None,
) -> None:
    """Raise a fault of a switch port or a whole switch."""
    fault = _switch_fault(code, sub_type, peer, chip, port, peer_port)
    level = _severity(severity)
    change_emulator(emulator_dir, lambda emulator: emulator.switch_occur(fault, level))


@switch.command(name="recover")
def switch_recover(
    code: SwitchCode,
    chip: SwitchChip,
    sub_type: SubType = None,
    port: SwitchPort = None,
    peer: Peer = None,
    peer_port: PeerPort = 0,
    emulator_dir: EmulatorDir = None,
) -> None:
    """End a fault of a switch."""
    fault = _switch_fault(code, sub_type, peer, chip, port, peer_port)
    change_emulator(emulator_dir, lambda emulator: emulator.switch_recover(fault))


@switch.command(name="once")
def switch_once(
    code: SwitchCode,
    chip: SwitchChip,
    sub_type: SubType = None,
    port: SwitchPort = None,
    peer: Peer = None,
    peer_port: PeerPort = 0,
    severity: SwitchSeverity = None,
    emulator_dir: EmulatorDir = None,
) -> None:
    """Send a notice of a switch, after which no recovery follows."""
    fault = _switch_fault(code, sub_type, peer, chip, port, peer_port)
    level = _severity(severity)
    change_emulator(emulator_dir, lambda emulator: emulator.switch_once(fault, level))


@app.command()
def drop(
    chip: Chip,
    hard: Annotated[bool, typer.Option("--hard", help="Every call of the chip fails.")] = False,
    emulator_dir: EmulatorDir = None,
) -> None:
    """Take a card away: its health call answers -8012."""
    change_emulator(emulator_dir, lambda emulator: emulator.drop(chip, hard))


@app.command(name="return")
def return_(chip: Chip, emulator_dir: EmulatorDir = None) -> None:
    """Bring a dropped card back."""
    change_emulator(emulator_dir, lambda emulator: emulator.restore(chip))


@app.command()
def hang(function: Function, chip: OnChip = None, emulator_dir: EmulatorDir = None) -> None:
    """Let calls of a function not return until it is cleared."""
    change_emulator(emulator_dir, lambda emulator: emulator.hang(function, chip))


@app.command()
def slow(
    function: Function,
    delay_ms: Annotated[int, typer.Argument(metavar="MS", help="Milliseconds.")],
    chip: OnChip = None,
    emulator_dir: EmulatorDir = None,
) -> None:
    """Let calls of a function take longer."""
    change_emulator(emulator_dir, lambda emulator: emulator.slow(function, delay_ms, chip))


@app.command(context_settings={"ignore_unknown_options": True})
def fail(
    function: Function,
    return_code: Annotated[int, typer.Argument(metavar="RETURN_CODE", help="As -8005.")],
    chip: OnChip = None,
    emulator_dir: EmulatorDir = None,
) -> None:
    """Let calls of a function answer a return code."""
    change_emulator(emulator_dir, lambda emulator: emulator.fail(function, return_code, chip))


@app.command()
def clear(function: Function, chip: OnChip = None, emulator_dir: EmulatorDir = None) -> None:
    """Let a function be normal again, on one chip or everywhere."""
    change_emulator(emulator_dir, lambda emulator: emulator.clear(function, chip))


@app.command()
def link(
    chip: Chip,
    state: Annotated[LinkState, typer.Argument(metavar="up|down")],
    quietly: Annotated[bool, typer.Option("--quietly", help="No event reports it.")] = False,
    ports: Annotated[
        int, typer.Option(help="How many Ethernet ports are down; 2 on an a5 only.")
    ] = 1,
    emulator_dir: EmulatorDir = None,
) -> None:
    """Take a chip's network link down, or bring it up."""
    with open_emulator(emulator_dir) as emulator:
        emulator.link(chip, up=state is LinkState.UP, quietly=quietly, ports=ports)


@app.command()
def tool(
    name: Annotated[str, typer.Argument(metavar="TOOL", help="hccn_tool or ipmitool.")],
    trouble: Annotated[
        str,
        typer.Argument(
            metavar="TROUBLE", help="hang, slow MS, fail EXIT TEXT, garble, busy, other-chip or ok."
        ),
    ],
    value: Annotated[
        int | None, typer.Argument(metavar="[MS|EXIT]", help="Milliseconds, or an exit status.")
    ] = None,
    text: Annotated[str, typer.Argument(metavar="[TEXT]", help="For standard error.")] = "",
    chip: OnChip = None,
    emulator_dir: EmulatorDir = None,
) -> None:
    """Let runs of a command line tool get into trouble."""
    from dcmi_shim.emulator.tools import SLOW

    delay_ms, exit_status = (value, None) if trouble == SLOW else (None, value)
    with open_emulator(emulator_dir) as emulator:
        emulator.tool(name, trouble, chip, delay_ms=delay_ms, exit_status=exit_status, text=text)


@app.command()
def load(
    chip: Chip,
    aicore: Annotated[int | None, typer.Option(help="Utilisation in percent.")] = None,
    hbm: Annotated[int | None, typer.Option(help="Memory in use, in percent.")] = None,
    traffic: Annotated[
        Traffic | None, typer.Option(help="Whether packets flow while the link is up.")
    ] = None,
    processes: Annotated[
        str | None, typer.Option(help="Ids of the processes that use the chip: 17,18; '' for none.")
    ] = None,
    emulator_dir: EmulatorDir = None,
) -> None:
    """Set what a chip does; what is left out stays as it is."""
    from contract.errors import ConfigurationError, Problem

    try:
        users = None if processes is None else [int(one) for one in processes.split(",") if one]
    except ValueError:
        problem = Problem("--processes", f"{processes!r} is no list of process ids")
        raise ConfigurationError("command line", [problem]) from None
    flows = None if traffic is None else traffic is Traffic.FLOWING
    with open_emulator(emulator_dir) as emulator:
        emulator.load(chip, aicore=aicore, hbm=hbm, traffic=flows, processes=users)


@app.command()
def address(
    chip: Chip,
    value: Annotated[str, typer.Argument(metavar="IP", help="An IPv4 address, or none.")],
    emulator_dir: EmulatorDir = None,
) -> None:
    """Give the network port of a chip another address."""
    given = None if value == "none" else value
    change_emulator(emulator_dir, lambda emulator: emulator.address(chip, given))


@app.command()
def virtual(
    chip: Chip,
    count: Annotated[int, typer.Argument(metavar="COUNT", help="How many; 0 for a whole chip.")],
    emulator_dir: EmulatorDir = None,
) -> None:
    """Cut a chip into virtual devices."""
    change_emulator(emulator_dir, lambda emulator: emulator.virtual(chip, count))


@app.command()
def play(file: ScenarioFile, emulator_dir: EmulatorDir = None) -> None:
    """Play a scenario, until its end."""
    from dcmi_shim.emulator.scenario import play as play_scenario
    from dcmi_shim.emulator.scenario import read_scenario

    scenario = read_scenario(file)
    change_emulator(emulator_dir, lambda emulator: play_scenario(scenario, emulator))


@app.command()
def reset(emulator_dir: EmulatorDir = None) -> None:
    """Make everything healthy and normal again."""
    change_emulator(emulator_dir, lambda emulator: emulator.reset())
