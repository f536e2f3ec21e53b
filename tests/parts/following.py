"""Follows device-info of a directory store without code of ours: every version that is seen."""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from tests.parts.deadlines import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_LOOK_SECONDS = 0.005


@dataclass(frozen=True)
class Version:
    """One version, whatever the card family. Names are those of devices."""

    text: str
    free: frozenset[str]
    unhealthy: frozenset[str]
    levels: dict[str, dict[str, str]]
    isolated: frozenset[str]
    times: dict[str, dict[str, int]]

    @property
    def named(self) -> frozenset[str]:
        """Return the devices in any list."""
        return self.free | self.unhealthy | frozenset(self.levels)


def version_of(data: dict[str, str]) -> Version:
    """Read the data keys as ClusterD does; the check code must be right."""
    outer = json.loads(data["DeviceInfoCfg"])
    inner = json.dumps(outer["DeviceInfo"], separators=(",", ":"), ensure_ascii=False)
    assert outer["CheckCode"] == hashlib.sha256(inner.encode()).hexdigest()
    devices: dict[str, str] = outer["DeviceInfo"]["DeviceList"]

    def names(suffix: str) -> frozenset[str]:
        found = next(value for key, value in devices.items() if key.endswith(suffix))
        return frozenset(filter(None, found.split(",")))

    free_key = min(devices, key=len)
    faults: list[dict[str, Any]] = json.loads(
        next(value for key, value in devices.items() if key.endswith("-Fault"))
    )
    levels: dict[str, dict[str, str]] = {}
    times: dict[str, dict[str, int]] = {}
    for fault in faults:
        codes = fault["fault_time_and_level_map"]
        levels.setdefault(fault["npu_name"], {}).update(
            {code: entry["fault_level"] for code, entry in codes.items()}
        )
        times.setdefault(fault["npu_name"], {}).update(
            {code: entry["fault_time"] for code, entry in codes.items()}
        )
    return Version(
        data["DeviceInfoCfg"],
        frozenset(filter(None, devices[free_key].split(","))),
        names("-Unhealthy"),
        levels,
        frozenset(filter(None, data["ManuallySeparateNPU"].split(","))),
        times,
    )


class Following:
    """Reads ``file`` all the time in a thread, for the length of the block."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._versions: list[Version] = []
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._follow, name=f"following {file.name}")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def versions(self) -> list[Version]:
        """Return all versions that were read; raises the error of the reader if it failed."""
        if self._failure is not None:
            raise self._failure
        return list(self._versions)

    @property
    def last(self) -> Version:
        """Return the newest version."""
        return self.versions[-1]

    def until(self, happened: Callable[[Version], bool], what: str, seconds: float = 30) -> None:
        """Wait until the newest version is as wanted."""
        wait_until(
            lambda: self.versions and happened(self.last),
            lambda: f"{what}: {self.versions[-1:]}",
            seconds,
            _LOOK_SECONDS,
        )

    def _follow(self) -> None:
        seen = None
        try:
            while not self._ended.wait(_LOOK_SECONDS):
                try:
                    content = self._file.read_text()
                except FileNotFoundError:
                    assert seen is None, "the document was deleted"
                    continue
                if content != seen:
                    seen = content
                    self._versions.append(version_of(json.loads(content)["data"]))
        except BaseException as error:  # the test raises it
            self._failure = error
