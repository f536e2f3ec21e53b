"""The shared storage clients DPC and DTFS of this host, by the status files that they write.

Source: ``noded#4.3`` and 4.4, without the defect D-11. On a host that never had such a file nothing
is reported. A client whose path is empty is not watched, and its faults end: the operator's way out
of a fault whose instance will never be listed again.
"""

from __future__ import annotations

import asyncio
import os
import stat
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import msgspec
from msgspec import Meta

from collectors.base import Collector
from collectors.boot import boot_id
from collectors.saved_state import read_saved
from collectors.storage.status_parser import DPC, DTFS, StorageClient, parse
from collectors.storage.tracker import SavedFlag, StorageTracker
from contract.file_kinds import kind_of
from contract.observation import Assertion, Observation, SourceAnswered, storage_subject
from contract.settings import ListenAddress, Section
from pacing.waiting import shared_pause

if TYPE_CHECKING:
    from collectors.base import CollectorContext
    from collectors.storage.status_parser import Instances
    from contract.observation import Report

_FORBIDDEN_BITS = 0o133
"""Executable for any user, writable for group or others."""
_MAX_BYTES = 1 << 20


def check_once(client: StorageClient, path: Path, *, any_owner: bool) -> Instances:
    """Return the instances in the status file of ``client``. Blocking.

    Raises ``OSError`` where it cannot be read, ``ValueError`` where it must not or makes no sense.
    """
    return parse(read_checked(path, any_owner=any_owner), client)


class StoredFlags(msgspec.Struct, frozen=True):
    """The saved state: of each client whose file existed, its instances."""

    boot_id: str = ""
    clients: dict[str, dict[str, tuple[SavedFlag, ...]]] = {}


class StorageSection(Section, frozen=True):
    """Shared storage clients, and how their faults are sent (``docs/spec/noded.md#4.3`` to 4.5).

    With ``clusterd`` over gRPC, not through the store; with ``ca_file`` over TLS. Files are PEM.
    """

    period_seconds: Annotated[float, Meta(ge=0.1, le=3600)] = 5.0
    dpc_file: str = "/user/mind-cluster/dpcstatus/dpc_status_check"
    dtfs_file: str = "/user/mind-cluster/dtfsstatus/dtfs_status_check"
    clusterd: ListenAddress | None = None
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None

    def __post_init__(self) -> None:
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("certificate_file and key_file are given both or not at all")
        if self.certificate_file is not None and self.ca_file is None:
            raise ValueError("a certificate is for TLS, which needs ca_file")


class StorageCollector(Collector[StorageSection]):
    """Reports storage faults. An empty path: there is no such client."""

    name = "storage"
    settings = StorageSection
    deadline_seconds = 5.0

    def __init__(self, section: StorageSection, context: CollectorContext) -> None:
        super().__init__(section, context)
        files = (DPC, section.dpc_file), (DTFS, section.dtfs_file)
        self._files = {client: Path(file) for client, file in files if file}

    async def run(self) -> NoReturn:
        """Report until cancelled."""
        context = self.context
        memory = read_saved(context.saved_state, self.name, StoredFlags) or StoredFlags()
        watches = [StatusFile(self, client, path, memory) for client, path in self._files.items()]
        removed = self._leave_out() & memory.clients.keys()
        while True:
            # Together: a file that hangs must not delay the check of the other client.
            changed = await asyncio.gather(*(watch.check() for watch in watches))
            if any(changed) or removed:
                removed = set()
                flags = {watch.client.name: watch.kept() for watch in watches if watch.was_there}
                context.saved_state.write(msgspec.json.encode(StoredFlags(boot_id(), flags)))
            context.progress()
            await asyncio.sleep(shared_pause(self.period_seconds))

    def _leave_out(self) -> set[str]:
        """End all faults of clients without a path; return the names of these clients."""
        context = self.context
        left_out = [client for client in (DPC, DTFS) if client not in self._files]
        for client in left_out:
            subject, now_ms = storage_subject(client.name), context.wall_clock()
            reports: list[Report] = [SourceAnswered(self.name, subject, now_ms)]
            reports += [
                Observation(self.name, subject, code, Assertion.ABSENT, now_ms)
                for about, code in sorted(context.tracked)
                if about == subject
            ]
            context.report(reports)
        return {client.name for client in left_out}


class StatusFile:
    """The status file of one client, and what is tracked of it."""

    def __init__(
        self,
        storage: StorageCollector,
        client: StorageClient,
        path: Path,
        memory: StoredFlags,
    ) -> None:
        context = storage.context
        subject = storage_subject(client.name)
        tracked = [code for about, code in context.tracked if about == subject]
        same_boot = memory.boot_id == boot_id()
        self.client = client
        self.was_there = client.name in memory.clients or bool(tracked)
        self._storage = storage
        self._path = path
        self._context = context
        self._reading: asyncio.Task[Instances] | None = None
        self._tracker = StorageTracker(
            storage.name,
            client,
            tracked,
            memory.clients.get(client.name, {}) if same_boot else {},
            _now(),
            context.wall_clock(),
        )

    def kept(self) -> dict[str, tuple[SavedFlag, ...]]:
        """Return what to save for the next process."""
        return self._tracker.kept(_now(), self._context.wall_clock())

    async def check(self) -> bool:
        """Read the file once; return whether there is another state to save."""
        appeared = not self.was_there
        if appeared and not self._is_there():
            return False
        self.was_there = True
        now_ms = self._context.wall_clock()
        try:
            listed = await self._instances()
        except (OSError, ValueError) as error:
            self._report(
                self._tracker.observe_failure(f"{self._path}: {_reason_of(error)}", now_ms)
            )
            return appeared
        reports, changed = self._tracker.observe_instances(
            listed, _now(), self._context.wall_clock()
        )
        self._report(reports)
        return appeared or changed

    def _is_there(self) -> bool:
        return os.path.lexists(self._path)

    async def _instances(self) -> Instances:
        seconds = self._storage.deadline_seconds
        if self._reading is None:
            # In a thread: a kernel module answers, which may block.
            any_owner = self._context.paths.trust_driver
            read = partial(check_once, self.client, self._path, any_owner=any_owner)
            name = f"{self.client.name} status"
            self._reading = asyncio.create_task(asyncio.to_thread(read), name=name)
        # Not cancelled at the deadline: the thread would hang on, and each check start another one.
        done, _ = await asyncio.wait({self._reading}, timeout=seconds)
        if not done:
            raise TimeoutError(f"no answer within {seconds:g} s")
        reading_done, self._reading = self._reading, None
        return reading_done.result()

    def _report(self, reports: list[Report]) -> None:
        if reports:
            self._context.report(reports)


def _reason_of(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _now() -> float:
    """Return seconds of a monotonic clock."""
    return asyncio.get_running_loop().time()


def read_checked(path: Path, *, any_owner: bool) -> bytes:
    """Return the content of ``path``. Blocking.

    Links are followed; the last one must belong to root as the file must, unless ``any_owner``
    (development). Raises ``OSError`` where it cannot be read and ``ValueError`` where it must not.
    """
    if not any_owner and path.lstat().st_uid != 0:
        raise ValueError(f"{path} does not belong to root")
    # A socket cannot be opened, and the kernel's error for that names no reason.
    if not stat.S_ISREG((there := path.stat()).st_mode):
        raise ValueError(f"{path} is not a regular file, but {kind_of(there)}")
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    # Links are resolved before, so a link at this place was put there since.
    descriptor = os.open(path.resolve(strict=True), flags)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{path} is not a regular file, but {kind_of(status)}")
        if not any_owner and status.st_uid != 0:
            raise ValueError(f"{path} leads to a file that does not belong to root")
        if status.st_mode & _FORBIDDEN_BITS:
            mode = stat.filemode(status.st_mode)
            raise ValueError(f"{path} is {mode}: others may write it, or it is a program")
        return _whole(descriptor, path)
    finally:
        os.close(descriptor)


def _whole(descriptor: int, path: Path) -> bytes:
    """Return the whole content: files of the kernel are read in pieces and have no known length."""
    content = bytearray()
    while piece := os.read(descriptor, 1 << 16):
        content += piece
        if len(content) > _MAX_BYTES:
            raise ValueError(f"{path} is larger than {_MAX_BYTES} bytes")
    return bytes(content)
