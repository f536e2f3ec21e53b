"""``vigil simulate dpu``: emulate the RDMA device plugin of a node.

The plugin writes ``dpuinfo-<node>`` (``docs/spec/dpu-info.md``). Each command reads that document,
changes one fault and writes the whole with the time of now, as the plugin does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from vigil import options  # noqa: TC001  (typer reads it)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from contract.documents.dpu_info import DpuFault

    Faults = tuple[DpuFault, ...]

app = typer.Typer(help="Emulate the RDMA plugin of a node (Kubernetes).", no_args_is_help=True)

_HCAS = tuple(f"mlx5_{number}" for number in range(8))
"""The devices of an emulated node, besides those with a fault."""

Node = Annotated[str, typer.Argument(metavar="NODE", help="Name of the node.")]
Code = Annotated[str, typer.Argument(metavar="CODE", help="As 21000024 (docs/codes.md).")]
Hca = Annotated[
    str, typer.Option("--hca", metavar="NAME", help="Device, as mlx5_0; '' for the node itself.")
]
Level = Annotated[str | None, typer.Option(help="Default: the plugin's level of the code.")]


@app.command()
def occur(
    node: Node,
    code: Code,
    hca: Hca = "mlx5_0",
    level: Level = None,
    kubeconfig: options.Kubeconfig = None,
) -> None:
    """Raise a fault of a device, or of the node."""
    import time

    from contract.codes.dpu_codes import DPU_CODES
    from contract.documents.dpu_info import DpuFault
    from contract.errors import ConfigurationError, Problem

    if level is None and code not in DPU_CODES:
        text = f"{code!r} is not a code of the plugin ({', '.join(DPU_CODES)}); give its --level"
        raise ConfigurationError("command line", [Problem("CODE", text)])
    name = level or DPU_CODES[code].level
    fault = DpuFault(hca, code, name, time.time_ns() // 1_000_000, "raised by vigil simulate")
    _write(node, kubeconfig, lambda faults: (*_without(faults, hca, code), fault))


@app.command()
def recover(
    node: Node, code: Code, hca: Hca = "mlx5_0", kubeconfig: options.Kubeconfig = None
) -> None:
    """End a fault."""
    _write(node, kubeconfig, lambda faults: _without(faults, hca, code))


@app.command()
def refresh(node: Node, kubeconfig: options.Kubeconfig = None) -> None:
    """Write the document with the time of now, as the plugin does every 5 minutes."""
    _write(node, kubeconfig, lambda faults: faults)


def _without(faults: Faults, hca: str, code: str) -> Faults:
    return tuple(fault for fault in faults if (fault.hca, fault.code) != (hca, code))


def _write(node: str, kubeconfig: Path | None, change: Callable[[Faults], Faults]) -> None:
    import asyncio
    import time

    from contract.documents import dpu_info
    from stores.address import open_store
    from stores.base import Document

    async def write() -> None:
        store = open_store("kubernetes:", kubeconfig, by_operator=True)
        try:
            name = dpu_info.PREFIX + node
            there = await store.get(dpu_info.NAMESPACE, name)
            faults: Faults = ()
            if there is not None:
                text = there.data.get(dpu_info.DATA_KEY)
                faults = dpu_info.decode_dpu_info(node, text).faults
            faults = change(faults)
            hcas = tuple(dict.fromkeys((*_HCAS, *(fault.hca for fault in faults if fault.hca))))
            data = dpu_info.encode_dpu_info(node, hcas, faults, time.time_ns() // 1_000_000)
            await store.put(
                Document(dpu_info.NAMESPACE, name, data, dict([dpu_info.LABEL])),
                # Another command may write at the same time, and its fault must not be lost.
                expected="" if there is None else there.version,
            )
        finally:
            await store.close()

    asyncio.run(write())
