"""``vigil simulate``: change the emulated hardware."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dcmi_shim.emulator.control import Emulator
from vigil.emulator import EmulatorDir, change_emulator, open_emulator, severity_named
from vigil.simulate import bmc as simulate_bmc
from vigil.simulate import dpu as simulate_dpu
from vigil.simulate.methods import CHIP, ON_CHIP, add_methods

if TYPE_CHECKING:
    from contract.codes.levels import Severity
    from dcmi_shim.emulator.switch_faults import EmulatedSwitchFault

app = typer.Typer(help="Change the emulated hardware.", no_args_is_help=True)
app.add_typer(simulate_bmc.app, name="bmc")
app.add_typer(simulate_dpu.app, name="dpu")

ScenarioFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="A scenario (docs/scenarios.md).")
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


add_methods(
    app,
    Emulator,
    ("occur", "recover", "once", "drop", "return", "hang", "slow", "fail", "clear"),
)


@app.command()
def link(
    chip: CHIP,
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
    chip: ON_CHIP = None,
    emulator_dir: EmulatorDir = None,
) -> None:
    """Let runs of a command line tool get into trouble."""
    from dcmi_shim.emulator.tools import SLOW

    delay_ms, exit_status = (value, None) if trouble == SLOW else (None, value)
    with open_emulator(emulator_dir) as emulator:
        emulator.tool(name, trouble, chip, delay_ms=delay_ms, exit_status=exit_status, text=text)


@app.command()
def load(
    chip: CHIP,
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
    from contract.sentences import sentence

    try:
        users = None if processes is None else [int(item) for item in processes.split(",") if item]
    except ValueError:
        text = sentence("{value} is not a valid list of process ids", value=repr(processes))
        raise ConfigurationError("command line", [Problem("--processes", text)]) from None
    flows = None if traffic is None else traffic is Traffic.FLOWING
    with open_emulator(emulator_dir) as emulator:
        emulator.load(chip, aicore=aicore, hbm=hbm, traffic=flows, processes=users)


@app.command()
def address(
    chip: CHIP,
    value: Annotated[str, typer.Argument(metavar="IP", help="An IPv4 address, or none.")],
    emulator_dir: EmulatorDir = None,
) -> None:
    """Give the network port of a chip another address."""
    given = None if value == "none" else value
    change_emulator(emulator_dir, lambda emulator: emulator.address(chip, given))


add_methods(app, Emulator, ("virtual",))


@app.command()
def play(file: ScenarioFile, emulator_dir: EmulatorDir = None) -> None:
    """Play a scenario, until its end."""
    from dcmi_shim.emulator.scenario import play as play_scenario
    from dcmi_shim.emulator.scenario import read_scenario

    scenario = read_scenario(file)
    change_emulator(emulator_dir, lambda emulator: play_scenario(scenario, emulator))


add_methods(app, Emulator, ("reset",))
