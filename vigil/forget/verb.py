"""``vigil forget``: a node that is no more, a chip that was taken out, or a directory's mark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vigil import options  # noqa: TC001  (typer reads it)


def forget(
    node: Annotated[
        list[str] | None, typer.Argument(metavar="NODE", help="Nodes that are no more.")
    ] = None,
    chip: Annotated[
        str | None,
        typer.Option("--chip", metavar="NAME", help="Of the chip, such as Ascend910-3."),
    ] = None,
    mark: Annotated[
        str | None,
        typer.Option(
            "--mark", metavar="ID", help="Of the directory that --store takes the place of."
        ),
    ] = None,
    store: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="Of nodes, or of the mark; as for the aggregator."),
    ] = None,
    kubeconfig: options.Kubeconfig = None,
    config: options.AggregatorConfig = None,
    state_dir: Annotated[
        Path, typer.Option(metavar="DIR", envvar="VIGIL_STATE_DIR", help="Of the agent.")
    ] = Path("/var/lib/npu-vigil"),
    yes: options.Confirmed = False,
    driver_root: options.DriverRoot = None,
    trust_driver: options.TrustDriver = None,
) -> None:
    """Forget nodes that are no more, with the aggregator running or not.

    A node that beats is refused. With --chip, on the node: forget a chip that the driver does not
    list any more, its faults, counts and isolation. With --mark: the directory of --store takes the
    place of the one with this mark. Exit status: 0 done, 1 refused, 2 wrong use, 3 the store, the
    driver or the state directory cannot be used.
    """
    import os
    import sys

    from contract.sentences import message

    if sum((bool(node), chip is not None, mark is not None)) != 1:
        raise typer.BadParameter(message("give nodes, or --chip NAME, or --mark ID"))
    if chip is not None:
        from vigil.forget.chip import AgentPaths, forget_chip

        where = AgentPaths(state_dir, driver_root, bool(trust_driver))
        sys.exit(forget_chip(where, chip, is_meant=yes))

    import asyncio

    from aggregator.config import load_aggregator
    from vigil.aggregator_stores import open_stores
    from vigil.forget.nodes import forget_mark, forget_nodes

    configuration = load_aggregator(
        config, os.environ, {"store": store or None, "kubeconfig": kubeconfig}
    )

    async def forget_in_stores() -> int:
        async with open_stores(configuration) as stores:
            if mark is not None:
                return await forget_mark(stores, mark, is_meant=yes)
            return await forget_nodes(stores, tuple(dict.fromkeys(node or ())), is_meant=yes)

    sys.exit(asyncio.run(forget_in_stores()))
