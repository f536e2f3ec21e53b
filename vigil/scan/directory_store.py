"""Check of the directory store: writable, with free space, and files that a rename can replace."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from contract.names import (
    DEVICE_INFO_NAMESPACE,
    NODE_INFO_NAMESPACE,
    device_info_name,
    node_info_name,
)
from pacing.abandonable_thread import AbandonableThread
from stores.directory.files import BEATS, document_path
from stores.directory.owner import shared_problem
from vigil.exit_status import ExitStatus
from vigil.scan.findings import ok, problem

if TYPE_CHECKING:
    from vigil.scan.findings import Check

DIRECTORY = "directory"
_SECONDS = 10.0
_FREE_BYTES = 16 << 20
_OF_A_NETWORK = ("nfs", "cifs", "smb", "9p", "ceph", "glusterfs", "lustre", "fuse.")


async def check_directory(url: str, node: str, *, others_may_write: bool) -> Check:
    """Check whether the documents of ``node`` can be written in ``directory:PATH``."""
    place = url.removeprefix("directory:")
    try:
        return await AbandonableThread(
            lambda: _directory(Path(place).expanduser().absolute(), node, others_may_write), "scan"
        ).result(_SECONDS)
    except TimeoutError:
        advice = "a mounted file system whose server is away? see dmesg and mount"
        found = f"{place} hangs: no answer within {_SECONDS:g} s"
        return problem(DIRECTORY, found, advice, ExitStatus.OUTSIDE)
    except OSError as error:
        advice = "see ls -ld and mount of this path"
        found = f"{place} cannot be used: {error.strerror}"
        return problem(DIRECTORY, found, advice, ExitStatus.OUTSIDE)


def _directory(place: Path, node: str, others_may_write: bool) -> Check:
    there = place
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        advice = f"remove {there}, or name another directory"
        return problem(DIRECTORY, f"{there} is no directory", advice, ExitStatus.OUTSIDE)
    if place.is_dir() and not others_may_write and (shared := shared_problem(place)):
        advice = f"chown root and chmod go-w {place}, or name a directory of the agent's own"
        return problem(DIRECTORY, shared, advice, ExitStatus.WRONG_USE)
    written = (
        document_path(place, DEVICE_INFO_NAMESPACE, device_info_name(node)),
        document_path(place, NODE_INFO_NAMESPACE, node_info_name(node)),
        document_path(place, BEATS, node),
    )
    for folder in (there, *(file.parent for file in written)):
        if folder.exists() and not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            found = f"{folder} cannot be read and written by user {os.geteuid()}"
            advice = f"chown or remount {folder}; the agent must be able to write there"
            return problem(DIRECTORY, found, advice, ExitStatus.OUTSIDE)
    apart = [str(file) for file in written if file.exists() and _lies_apart(file)]
    if apart:
        found = f"on another file system than its directory: {', '.join(apart)}"
        advice = "mount directories, not files: a file that is a mount cannot be replaced"
        return problem(DIRECTORY, found, advice, ExitStatus.OUTSIDE)
    room = os.statvfs(there)
    free = room.f_bavail * room.f_frsize
    if free < _FREE_BYTES:
        found = f"{place} has {free >> 20} MiB left"
        return problem(
            DIRECTORY, found, "make room on this file system", facts={"free_bytes": free}
        )
    will = "" if there == place else "; the agent will make it"
    kind = _file_system(there)
    facts: dict[str, object] = {"free_bytes": free, "file_system": kind}
    found = f"{place} ({kind}), {free >> 20} MiB free{will}"
    advice = ""
    if kind.startswith(_OF_A_NETWORK):
        advice = (
            f"{kind} does not notify an aggregator on another machine of changes here: between "
            "machines use a broker"
        )
    return ok(DIRECTORY, found, advice, facts)


def _file_system(place: Path) -> str:
    """Return the kind of file system of ``place``; the last mount over a directory counts."""
    mounts = {Path(one.mountpoint): one.fstype for one in psutil.disk_partitions(all=True)}
    real = place.resolve()
    return next((mounts[part] for part in (real, *real.parents) if part in mounts), "unknown")


def _lies_apart(file: Path) -> bool:
    return file.is_mount() or file.stat().st_dev != file.parent.stat().st_dev
