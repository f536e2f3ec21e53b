"""``vigil isolate NODE CHIP`` and ``vigil release NODE CHIP``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NoReturn, TypeAlias

import typer

from vigil import options  # noqa: TC001  (typer reads it)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from vigil.isolation.change import Consent, Isolation

_Node: TypeAlias = Annotated[str, typer.Argument(metavar="NODE", help="Name of the node.")]
_Chip: TypeAlias = Annotated[
    str, typer.Argument(metavar="CHIP", help="Name or physical id, such as Ascend910-3 or 3.")
]
_Stores: TypeAlias = Annotated[
    list[str] | None, typer.Option("--store", metavar="URL", help="As for the aggregator.")
]
_Yes: TypeAlias = Annotated[bool, typer.Option("--yes", help="Do it without asking.")]
_DryRun: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Only show what would be done.")
]


def isolate(
    node: _Node,
    chip: _Chip,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; kept with the chip.")],
    store: _Stores = None,
    kubeconfig: options.Kubeconfig = None,
    config: options.AggregatorConfig = None,
    yes: _Yes = False,
    dry_run: _DryRun = False,
    as_json: options.Json = False,
) -> None:
    """Isolate a chip until an operator releases it; with your own rights on the store.

    It waits until cluster-info shows it. Exit status: 0 isolated, 1 refused or not shown within
    30 s, 2 wrong use, unknown node or chip, 3 a store cannot be used.
    """
    from vigil.isolation.change import Isolation, stated_name

    consent = _consent(yes=yes, dry_run=dry_run)
    given = {"store": store or None, "kubeconfig": kubeconfig}
    _change(Isolation(node, chip, stated_name(), reason), consent, config, given, as_json=as_json)


def release(
    node: _Node,
    chip: Annotated[
        str | None,
        typer.Argument(metavar="CHIP", help="Name or physical id, such as Ascend910-3 or 3."),
    ] = None,
    taint: Annotated[
        bool,
        typer.Option("--taint", help="Remove the taint npu-vigil/fault, not a chip's isolation."),
    ] = False,
    store: _Stores = None,
    kubeconfig: options.Kubeconfig = None,
    config: options.AggregatorConfig = None,
    yes: _Yes = False,
    dry_run: _DryRun = False,
    as_json: options.Json = False,
) -> None:
    """Release a chip, whoever isolated it: a rule, a person or the policy of the cluster.

    It waits until cluster-info shows it, and shows which level stays because of other faults. With
    --taint it removes the taint of the Node; the aggregator writes it again for other faults only.
    Exit status: 0 released, 1 not shown within 30 s or no taint, 2 wrong use or unknown name, 3 a
    store cannot be used.
    """
    from contract.sentences import message
    from vigil.isolation.change import Isolation

    consent = _consent(yes=yes, dry_run=dry_run)
    given = {"store": store or None, "kubeconfig": kubeconfig}
    # Both or neither would leave open what is to be released.
    if taint is (chip is not None):
        raise typer.BadParameter(message("give either CHIP or --taint"))
    if chip is None:
        _release_taint(node, consent, config, given, as_json=as_json)
    else:
        _change(Isolation(node, chip), consent, config, given, as_json=as_json)


def _release_taint(
    node: str,
    consent: Consent,
    config: Path | None,
    given: Mapping[str, object],
    *,
    as_json: bool,
) -> NoReturn:
    import asyncio
    import os
    import sys

    from aggregator.config import load_aggregator
    from vigil.isolation.taint import release_taint

    configuration = load_aggregator(config, os.environ, given)
    sys.exit(asyncio.run(release_taint(configuration, node, consent, as_json=as_json)))


def _consent(*, yes: bool, dry_run: bool) -> Consent:
    from vigil.isolation.change import Consent

    return Consent.DRY_RUN if dry_run else Consent.GIVEN if yes else Consent.ASK


def _change(
    change: Isolation,
    consent: Consent,
    config: Path | None,
    given: Mapping[str, object],
    *,
    as_json: bool,
) -> NoReturn:
    import asyncio
    import os
    import sys

    from aggregator.config import load_aggregator
    from vigil.isolation.run import run

    configuration = load_aggregator(config, os.environ, given)
    sys.exit(asyncio.run(run(configuration, change, consent, as_json=as_json)))
