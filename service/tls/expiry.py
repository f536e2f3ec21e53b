"""When the certificates in files end: the files are read in a thread, again when they change."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from pacing.abandonable_thread import AbandonableThread
from pacing.waiting import shared_pause
from service.metric_families import gauge
from stores.certificates import end_of_pem, last_end_of_pem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime
    from pathlib import Path

    from prometheus_client import Metric

_Stamp: TypeAlias = tuple[int, int, int]

_log = logging.getLogger(__name__)

_PERIOD_SECONDS = 30.0
_DEADLINE_SECONDS = 10.0
_MAX_BYTES = 4 << 20


def certificate_metric(ends_ms: Mapping[str, int]) -> Metric:
    """Return the metric of certificates: when that in a file ends, by the file."""
    return gauge(
        "npu_vigil_certificate_expiry_timestamp_seconds",
        "When the certificate in a file ends (Unix time).",
        ["file"],
        (([file], at_ms / 1000) for file, at_ms in sorted(ends_ms.items())),
    )


class CertificateFiles:
    """PEM files that this daemon uses: its own certificates, and ``authorities`` that it trusts.

    Of its own the first certificate of a file counts, since the others are of authorities. Of
    ``authorities`` the one that ends last counts. ``None`` stands for a file that is not given.
    """

    def __init__(self, own: Iterable[Path | None], authorities: Iterable[Path | None]) -> None:
        kinds = ((own, end_of_pem), (authorities, last_end_of_pem))
        self._readers: dict[Path, Callable[[str], datetime]] = {
            file: read for files, read in kinds for file in files if file is not None
        }
        self._read_ends_ms: dict[Path, tuple[_Stamp, int | None]] = {}
        """What the newest reading of each file found. It belongs to the thread."""
        self._thread: AbandonableThread[dict[str, int]] | None = None
        self.ends_ms: dict[str, int] = {}
        """When the certificate of each file ends (epoch ms); none for a file that has none now."""

    async def run(self) -> NoReturn:
        """Look at the files for ever."""
        while True:
            await self._look()
            await asyncio.sleep(shared_pause(_PERIOD_SECONDS))

    async def _look(self) -> None:
        # A disk that hangs keeps one thread, and what was known.
        if not self._readers or (self._thread is not None and self._thread.is_stuck):
            return
        self._thread = AbandonableThread(self._read, "certificates")
        try:
            self.ends_ms = await self._thread.result(_DEADLINE_SECONDS)
        except TimeoutError:
            _log.warning("certificates cannot be read within %g s", _DEADLINE_SECONDS)

    def _read(self) -> dict[str, int]:
        ends_ms = {}
        for file, end_of in self._readers.items():
            try:
                end_ms = self._end_ms(file, end_of)
            except (OSError, ValueError):
                # Its user names what is wrong with it; an unknown end has no series.
                continue
            if end_ms is not None:
                ends_ms[str(file)] = end_ms
        return ends_ms

    def _end_ms(self, file: Path, end_of: Callable[[str], datetime]) -> int | None:
        """Return when a file's certificate ends; ``None`` without one.

        Raises ``OSError``, and ``ValueError`` for a path that no file can have.
        """
        # Before the reading: a file that is replaced meanwhile is read again.
        status = file.stat()
        stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
        before = self._read_ends_ms.get(file)
        if before is not None and before[0] == stamp:
            return before[1]
        with file.open("rb") as opened:
            text = opened.read(_MAX_BYTES).decode("ascii", "ignore")
        try:
            end_ms: int | None = int(end_of(text).timestamp() * 1000)
        except ValueError:
            end_ms = None
        self._read_ends_ms[file] = (stamp, end_ms)
        return end_ms
