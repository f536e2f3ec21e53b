"""Checks of shared storage: status files of its clients, and the ClusterD for their faults."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from collectors.storage.collector import StorageSection
from collectors.storage.status_file import read_checked
from collectors.storage.status_parser import DPC, DTFS, parse
from pacing.abandonable_thread import AbandonableThread
from vigil.scan.findings import not_applicable, ok, problem

if TYPE_CHECKING:
    from agent.config import AgentConfiguration
    from collectors.storage.status_parser import Instances, StorageClient
    from vigil.scan.findings import Check

CLUSTERD = "clusterd"
_FILE_SECONDS = 5.0
_CONNECT_SECONDS = 5.0


async def check_storage(configuration: AgentConfiguration) -> tuple[Check, ...]:
    """Check whether the files of DPC and DTFS can be read, and whether ClusterD answers."""
    storage, any_owner = configuration.settings_of(StorageSection), configuration.trust_driver
    return (
        await _file(DPC, Path(storage.dpc_file), any_owner=any_owner),
        await _file(DTFS, Path(storage.dtfs_file), any_owner=any_owner),
        await _clusterd(configuration),
    )


async def _file(client: StorageClient, path: Path, *, any_owner: bool) -> Check:
    """Read the files as the collector does. A fault in it is no problem of the set-up."""
    name = f"storage-{client.name.lower()}"

    def read() -> Instances | None:
        if not os.path.lexists(path):
            return None
        return parse(read_checked(path, any_owner=any_owner), client)

    try:
        instances = await AbandonableThread(read, "scan").result(_FILE_SECONDS)
    except TimeoutError:
        advice = f"the kernel module of {client.name} does not answer; see dmesg"
        return problem(name, f"{path} hangs: no answer in {_FILE_SECONDS:g} s", advice)
    except OSError as error:
        advice = f"let root read it; faults of {client.name} are not seen until then"
        return problem(name, f"{path} cannot be read: {error.strerror}", advice)
    except ValueError as error:
        advice = (
            f"only root may own and write it, and {client.name} alone fills it; its faults are "
            "not seen until then"
        )
        found = str(error) if str(path) in str(error) else f"{path}: {error}"
        return problem(name, found, advice)
    if instances is None:
        return not_applicable(name, f"there is no {path}: no {client.name} on this host")
    raised = sorted(
        {
            flag.code
            for flags in instances.values()
            for flag, is_raised in zip(client.flags, flags, strict=True)
            if is_raised
        }
    )
    found = (
        f"{path} can be read; instances: {len(instances)}, raised: {', '.join(raised) or 'none'}"
    )
    return ok(name, found, facts={"instances": len(instances), "raised": raised})


async def _clusterd(configuration: AgentConfiguration) -> Check:
    address = configuration.settings_of(StorageSection).clusterd
    if address is None:
        return not_applicable(CLUSTERD, "storage.clusterd is not given: faults go to the store")
    if configuration.shadow or "node-info" not in configuration.documents:
        return not_applicable(CLUSTERD, "node-info is not ours, so other programs report storage")
    host, _, port = address.rpartition(":")

    def connect() -> None:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()

    try:
        await AbandonableThread(connect, "scan").result(2 * _CONNECT_SECONDS)
    except (OSError, TimeoutError) as error:
        why = getattr(error, "strerror", None) or str(error) or "no answer"
        advice = (
            "is ClusterD started, and storage.clusterd its gRPC address? Faults of storage wait "
            "until it takes them"
        )
        return problem(CLUSTERD, f"{address}: {why}", advice)
    return ok(CLUSTERD, f"{address} takes connections")
