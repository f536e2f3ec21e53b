"""``vigil uninstall``: what agents and aggregators wrote, cleaned when they are gone."""

from __future__ import annotations

from typing import Annotated

import typer

from vigil import options  # noqa: TC001  (typer reads it)


def uninstall(
    store: Annotated[
        list[str] | None, typer.Option(metavar="URL", help="As for the aggregator; repeatable.")
    ] = None,
    kubeconfig: options.Kubeconfig = None,
    config: options.AggregatorConfig = None,
    yes: options.Confirmed = False,
) -> None:
    """Clean what NPU Vigil wrote, after its agents and aggregators are stopped.

    Faults in cluster-info end first; after a touch period documents, state and Leases are deleted,
    and vcjobs lose our annotations. Exit status: 0 done, 1 refused because a daemon still runs,
    2 wrong use, 3 a store cannot be used.
    """
    import asyncio
    import os
    import sys

    from aggregator.config import load_aggregator
    from vigil.uninstall.clean import uninstall_all

    given = {"store": store or None, "kubeconfig": kubeconfig}
    configuration = load_aggregator(config, os.environ, given)
    sys.exit(asyncio.run(uninstall_all(configuration, is_meant=yes)))
