"""``vigil demo``: the whole system on one machine with emulated hardware."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vigil import options  # noqa: TC001  (typer reads it)


def demo(
    nodes: Annotated[
        int, typer.Option(min=1, max=32, envvar="VIGIL_NODES", help="Emulated nodes.")
    ] = 3,
    speed: Annotated[
        float,
        typer.Option(
            min=0.1,
            max=20.0,
            envvar="VIGIL_SPEED",
            help=(
                "Divides pauses, timeouts and the heartbeat interval of the scenario; "
                "1 plays them as shipped."
            ),
        ),
    ] = 2.5,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            envvar="VIGIL_FULL",
            help="Play all 38 states, not only 10; takes a minute.",
        ),
    ] = False,
    as_json: options.Json = False,
    keep: Annotated[
        bool,
        typer.Option(
            "--serve",
            "--keep",
            envvar="VIGIL_KEEP",
            help="Keep everything running after the scenario, until Ctrl-C.",
        ),
    ] = False,
    store: Annotated[
        str | None, typer.Option(envvar="VIGIL_STORE", help="kubernetes: or directory:PATH.")
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            envvar="VIGIL_PROFILE",
            help="Only servers of this kind: a2, a3, 910a, 310p, 310, duo or a5.",
        ),
    ] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(envvar=["VIGIL_KUBECONFIG", "KUBECONFIG"], help="For --store kubernetes:."),
    ] = None,
) -> None:
    """Run a scenario of faults on emulated nodes; 0 if every expected state was reached."""
    import asyncio
    import signal
    import tempfile

    from dcmi_shim.emulator.control import check_profile
    from vigil.demo.command import DemoOptions, play, scenario

    if profile is not None:
        check_profile(profile)
    with tempfile.TemporaryDirectory(prefix="vigil-demo-") as directory:
        options = DemoOptions(
            directory=Path(directory),
            nodes=nodes,
            speed=speed,
            json=as_json,
            keep=keep,
            store=store,
            kubeconfig=kubeconfig,
            profile=profile,
            full=full,
        )

        async def until_stopped() -> bool:
            task = asyncio.current_task()
            assert task is not None
            # As Ctrl-C does: everything that was started ends with the demo.
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
            return await play(options, scenario(options))

        try:
            well = asyncio.run(until_stopped())
        except KeyboardInterrupt:
            raise typer.Exit(128 + signal.SIGINT) from None
        except asyncio.CancelledError:
            raise typer.Exit(128 + signal.SIGTERM) from None
    if not well:
        raise typer.Exit(1)
