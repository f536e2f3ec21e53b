"""``vigil forget``: a chip that was taken out of this node on purpose."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vigil import agent_options as options  # noqa: TC001  (typer reads it)


def forget(
    chip: Annotated[
        str, typer.Option("--chip", metavar="NAME", help="Of the chip, such as Ascend910-3.")
    ],
    state_dir: Annotated[
        Path, typer.Option(metavar="DIR", envvar="VIGIL_STATE_DIR", help="Of the agent.")
    ] = Path("/var/lib/npu-vigil"),
    yes: Annotated[
        bool, typer.Option("--yes", help="Do it. Without it, only say what would be done.")
    ] = False,
    driver_root: options.DriverRoot = None,
    trust_driver: options.TrustDriver = None,
) -> None:
    """Forget a chip that the driver does not list any more: its faults, counts and isolation.

    On the node, with the agent running or not. Exit status: 0 done, 1 refused, 2 wrong use, 3 the
    driver or the state directory cannot be used.
    """
    import sys

    from vigil.forgetting import Node, forget_chip

    node = Node(state_dir, driver_root, bool(trust_driver))
    sys.exit(forget_chip(node, chip, is_meant=yes))
