"""``vigil simulate bmc``: change the emulated BMC."""

from __future__ import annotations

from typing import Annotated

import typer

from dcmi_shim.emulator.bmc import EmulatedBmc
from vigil.emulator import EmulatorDir, change_emulator, severity_named
from vigil.simulate.methods import add_methods

app = typer.Typer(help="Change the emulated BMC.", no_args_is_help=True)

Code = Annotated[str, typer.Argument(metavar="CODE", help="Event code, as 28000009.")]
Device = Annotated[
    str, typer.Option("--device", help="Device type by its name, as Fan, or its byte, as 0x04.")
]
Index = Annotated[int, typer.Option("--index", help="Which device of this type.")]
_PARAMETERS = {
    "code": Code,
    "device": Device,
    "index": Index,
    "where": Annotated[
        str, typer.Option("--where", help="reply (no answer), or stuck in the kernel: ioctl, open.")
    ],
    "alarms": Annotated[int, typer.Argument(metavar="N", help="Alarms in one reply, 1 to 60.")],
    "serial": Annotated[str | None, typer.Option(help="Serial number of the server.")],
    "manufacturer": Annotated[str | None, typer.Option(help="Its manufacturer.")],
}


def _add(*names: str) -> None:
    add_methods(app, EmulatedBmc, names, _PARAMETERS, lambda emulator: emulator.bmc)


@app.command()
def occur(
    code: Code,
    device: Device,
    index: Index = 0,
    severity: Annotated[
        str, typer.Option("--severity", help="suggestion (BMC: normal), minor, major or critical.")
    ] = "major",
    emulator_dir: EmulatorDir = None,
) -> None:
    """Raise an alarm."""
    from dcmi_shim.emulator.bmc import BmcAlarm

    alarm = BmcAlarm(code, device, index, severity_named(severity))
    change_emulator(emulator_dir, lambda emulator: emulator.bmc.occur(alarm))


_add("recover", "clear")


@app.command()
def absent(emulator_dir: EmulatorDir = None) -> None:
    """Take the BMC away: neither its device nor ipmitool works."""
    change_emulator(emulator_dir, lambda emulator: emulator.bmc.present(False))


@app.command()
def present(emulator_dir: EmulatorDir = None) -> None:
    """Bring the BMC back."""
    change_emulator(emulator_dir, lambda emulator: emulator.bmc.present(True))


_add("hang", "slow")


@app.command()
def fail(
    completion_code: Annotated[str, typer.Argument(metavar="CC", help="Hexadecimal, as C1.")],
    emulator_dir: EmulatorDir = None,
) -> None:
    """Let every command be answered with a completion code."""
    from contract.errors import ConfigurationError, Problem
    from dcmi_shim.emulator.bmc import parse_completion_code

    try:
        number = parse_completion_code(completion_code)
    except ValueError as error:
        raise ConfigurationError("command line", [Problem("CC", str(error))]) from None
    change_emulator(emulator_dir, lambda emulator: emulator.bmc.fail(number))


_add("page", "label")


@app.command()
def reply(
    replies: Annotated[
        list[str],
        typer.Argument(
            metavar="REQUEST BYTES...",
            help="94@N, 94@*, 90@4 or 90@0, and the whole reply in hexadecimal, completion code"
            " first; again for more requests.",
        ),
    ],
    emulator_dir: EmulatorDir = None,
) -> None:
    """Answer requests with these bytes, until `ok`."""
    from contract.errors import ConfigurationError, Problem
    from dcmi_shim.emulator.bmc import parse_reply

    if len(replies) % 2:
        message = f"{replies[-1]!r} has no reply; give a request and its bytes in quotes"
        raise ConfigurationError("command line", [Problem("REQUEST BYTES", message)])
    try:
        pairs = [
            (request, parse_reply(text))
            for request, text in zip(replies[::2], replies[1::2], strict=True)
        ]
    except ValueError as error:
        raise ConfigurationError("command line", [Problem("REQUEST BYTES", str(error))]) from None
    change_emulator(emulator_dir, lambda emulator: emulator.bmc.replies(pairs))


_add("ok")
