"""The configuration that requests to an API server are made with, read again when that may help.

Files that change are read again. So is everything, at most once in 5 s, after the server refused
what is in use. What cannot be used leaves the last good one in force.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from contract.errors import StoreMisconfigured, StoreUnavailable
from pacing.abandonable_thread import AbandonableThread
from stores.kubernetes_api.client.configuration import ConfigurationReader
from stores.kubernetes_api.client.credential_files import CredentialFiles
from stores.kubernetes_api.client.credential_plugin import Plugins
from stores.kubernetes_api.client.unusable import misconfigured

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from contract.errors import Problem
    from stores.kubernetes_api.client.configuration import ClientConfiguration

T = TypeVar("T")

_log = logging.getLogger(__name__)

_POLL_SECONDS = 1.0
_BEHIND_SECONDS = 0.05
"""The request that causes a look at the files is sent by then. A thread for it costs as much."""
_PAUSE_SECONDS = 5.0
_DEADLINE_SECONDS = 10.0
_ENDING_SECONDS = 1.0
"""What a plugin that misses the deadline needs to be ended."""

_CLOSED = "the store has been closed"


class Credentials:
    """Reads in a thread, and never twice at once. ``kubeconfig`` is ``None`` inside a pod."""

    def __init__(self, kubeconfig: str | None) -> None:
        self._kubeconfig = kubeconfig
        self._files = CredentialFiles()
        self._plugins = Plugins()
        self._good: ClientConfiguration | None = None
        self._trouble: StoreMisconfigured | None = None
        self._is_closed = False
        self._unused: Problem | None = None
        self._task: asyncio.Task[None] | None = None
        self._stuck: AbandonableThread[Any] | None = None
        self._began = -math.inf
        self._looked = -math.inf

    async def current(self) -> ClientConfiguration:
        """Return the configuration in force, at once if there is one.

        Raises ``StoreMisconfigured`` while there has been no good one.
        """
        if self._good is None:
            await self._finished(self._refreshing(is_refused=True))
        elif time.monotonic() - self._looked >= _POLL_SECONDS:
            # Not awaited: requests go on with what is in force.
            self._looked = time.monotonic()
            asyncio.get_running_loop().call_later(_BEHIND_SECONDS, self._look_again)
        return self._in_force()

    def _look_again(self) -> None:
        if not self._is_closed:
            self._refreshing(is_refused=False)

    async def renewed(self, refused: ClientConfiguration) -> ClientConfiguration:
        """Return a newer configuration than ``refused``, or the same if there is none.

        For requests that got an answer 401 or an error of TLS.
        """
        if self._task is not None:
            await self._finished(self._task)
        if self._good is refused:
            await self._finished(self._refreshing(is_refused=True))
        return self._in_force()

    @property
    def certificate_ends_ms(self) -> Mapping[str, int]:
        """When the certificates in force end (epoch ms), by the file that they are in."""
        return {} if self._good is None else self._good.certificate_ends_ms

    def close(self) -> None:
        """End the current reading, and its plugin."""
        self._is_closed = True
        self._plugins.end()
        if self._task is not None:
            self._task.cancel()

    def _in_force(self) -> ClientConfiguration:
        if self._good is not None and not self._is_closed:
            return self._good
        if self._trouble is not None:
            # Another one: each raise adds to the traceback that an exception keeps.
            raise StoreMisconfigured(self._trouble.source, self._trouble.problems)
        raise StoreUnavailable(_CLOSED if self._is_closed else "no credentials could be read")

    @staticmethod
    async def _finished(task: asyncio.Task[None]) -> None:
        """Wait for ``task``, which keeps running for others if this wait is cancelled."""
        await asyncio.wait([task])

    def _refreshing(self, *, is_refused: bool) -> asyncio.Task[None]:
        if self._is_closed:
            raise StoreUnavailable(_CLOSED)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._refresh(is_refused), name="credentials")
        return self._task

    async def _refresh(self, is_refused: bool) -> None:
        """Read again if that may help: files have changed, or what there is does not do."""
        self._looked = time.monotonic()
        # A second thread would hang in the same file system.
        if self._stuck is not None and self._stuck.is_stuck:
            return
        try:
            has_changed = await self._in_thread(self._files.have_changed, _DEADLINE_SECONDS)
            now = time.monotonic()
            is_due = now - self._began >= _PAUSE_SECONDS
            if has_changed:
                # Changed files are read at once, but no plugin is run more often than once in 5 s.
                is_due = now - self._plugins.began >= _PAUSE_SECONDS
            if is_due and (has_changed or is_refused or self._trouble is not None):
                self._began = now
                await self._read(now + _DEADLINE_SECONDS)
        except TimeoutError:
            message = f"cannot be read within {_DEADLINE_SECONDS:g} s; is their file system there?"
            self._fail(misconfigured("credentials", message))

    async def _read(self, deadline: float) -> None:
        files = CredentialFiles()
        reading = ConfigurationReader(files, self._plugins, dict(os.environ), deadline)
        read = partial(reading.read, self._kubeconfig)
        try:
            self._succeed(await self._in_thread(read, _DEADLINE_SECONDS + _ENDING_SECONDS))
        except StoreMisconfigured as error:
            self._fail(error)
        # After a failure, too: a change of these files is the next reason to read.
        self._files = files

    async def _in_thread(self, work: Callable[[], T], seconds: float) -> T:
        begun = AbandonableThread(work, "credentials")
        try:
            return await begun.result(seconds)
        except TimeoutError:
            self._stuck = begun
            raise

    def _fail(self, error: StoreMisconfigured) -> None:
        if self._trouble is None:
            _log.warning(
                "%s; %s", error, "the credentials in use stay" if self._good else "read again soon"
            )
        self._trouble = error

    def _succeed(self, read: ClientConfiguration) -> None:
        if self._trouble is not None:
            _log.info("store kubernetes: the credentials are good again")
            self._trouble = None
        if read.unused is not None and read.unused != self._unused:
            _log.warning("store kubernetes: %s", read.unused)
        self._unused = read.unused
        if self._good is not None and read.endpoint != self._good.endpoint:
            _log.info("store kubernetes: the address or the certificates were replaced")
        if read != self._good:
            self._good = read
