"""The tracked state of one storage client, and what a reading of its file changes. Pure.

Unknown is not healthy (``noded#10``, D-11): an instance at fault that is not listed any more, and a
file that lists none, end nothing. Such an instance is awaited until it is listed again, or until
the host was rebooted. Two clocks are used, as in ``driver_list_tracker``: ``at`` is seconds of a
monotonic clock, ``now_ms`` the host's, for reports and for what outlives this process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from collectors.answer_tracker import AnswerTracker
from contract.observation import Assertion, Observation, storage_subject

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from collectors.storage.status_parser import Flag, Instances, StorageClient
    from contract.observation import Report

_DEBOUNCE_SECONDS = {"110001021": 600.0}
"""Seconds for which a flag, by its fault code, must be unchanged before it counts, either way.

Others count at once (``docs/spec/noded.md#4.3``).
"""
_LATE_SECONDS = 0.5
"""How late the check that begins this time may be, without one more check at its end."""


class SavedFlag(msgspec.Struct, frozen=True):
    """One flag of one instance, for the next process: raised or not since ``since_ms``."""

    raised: bool
    since_ms: int


@dataclass
class _FlagState:
    """One flag of one instance: as it is since ``since``, and was listed last at ``seen``."""

    raised: bool
    since: float
    seen: float

    def is_unchanged_for(self, seconds: float) -> bool:
        return self.seen - self.since >= seconds - _LATE_SECONDS


class StorageTracker:
    """The tracked state of ``client``.

    ``tracked`` are the codes that held when the last process ended, ``kept`` its state of the
    instances, where the host was not rebooted since.
    """

    def __init__(
        self,
        source: str,
        client: StorageClient,
        tracked: Iterable[str],
        saved: Mapping[str, tuple[SavedFlag, ...]],
        at: float,
        now_ms: int,
    ) -> None:
        self._source = source
        self._client = client
        self._subject = storage_subject(client.name)
        option = f"storage.{client.name.lower()}_file"
        self._way_out = (
            "they are at fault until they are listed as well or the host starts anew. If they are "
            f'gone for good, start this agent once with {option} = ""'
        )
        self._tracked = set(tracked)
        self._answers = AnswerTracker(source, self._subject)
        self._instances = {
            instance: tuple(_restored(flag, at, now_ms) for flag in flags)
            for instance, flags in saved.items()
            # Another release may have saved other flags.
            if len(flags) == len(client.flags)
        }

    def kept(self, at: float, now_ms: int) -> dict[str, tuple[SavedFlag, ...]]:
        """Return what to save for the next process."""
        return {
            instance: tuple(
                SavedFlag(flag.raised, now_ms - round((at - flag.since) * 1000)) for flag in flags
            )
            for instance, flags in self._instances.items()
        }

    def observe_instances(
        self, listed: Instances, at: float, now_ms: int
    ) -> tuple[list[Report], bool]:
        """Apply a list of all instances.

        Returns what to report, and whether ``kept`` has changed.
        """
        changed = self._apply(listed, at)
        missing = self._missing(listed)
        changed |= bool(self._instances.keys() - listed.keys() - missing)
        self._instances = {
            instance: flags
            for instance, flags in self._instances.items()
            if instance in listed or instance in missing
        }
        reports: list[Report] = []
        if missing:
            numbers = ", ".join(sorted(missing))
            gone = f"instances at fault are not listed any more: {numbers}"
            reports += self.observe_failure(f"{gone}; {self._way_out}", now_ms)
        # An empty file may be a client that was restarted: it proves no recovery.
        elif self._tracked and not listed:
            reports += self.observe_failure(
                f"no instance is listed any more; {self._way_out}", now_ms
            )
        else:
            reports += self._answers.observe_answer(now_ms)
        for place, flag in enumerate(self._client.flags):
            assertion = self._judge(place, flag, bool(listed))
            if assertion is not None:
                reports.append(
                    Observation(self._source, self._subject, flag.code, assertion, now_ms)
                )
        return reports, changed

    def observe_failure(self, reason: str, since_ms: int) -> list[Report]:
        """Apply that there is no complete reading since ``since_ms``: the tracked state stays."""
        return self._answers.observe_failure(reason, since_ms)

    def _apply(self, listed: Instances, at: float) -> bool:
        changed = False
        for instance, raised in listed.items():
            flags = self._instances.get(instance)
            if flags is None:
                self._instances[instance] = tuple(
                    _FlagState(flag_state, at, at) for flag_state in raised
                )
                changed = True
                continue
            for flag, now_raised in zip(flags, raised, strict=True):
                flag.seen = at
                if flag.raised != now_raised:
                    flag.raised, flag.since = now_raised, at
                    changed = True
        return changed

    def _missing(self, listed: Instances) -> set[str]:
        """Return instances that are not listed any more and were not known to be well."""
        return {
            instance
            for instance, flags in self._instances.items()
            if instance not in listed
            and any(
                flag_state.raised
                or (
                    flag.code in self._tracked
                    and not flag_state.is_unchanged_for(_debounce_seconds(flag))
                )
                for flag_state, flag in zip(flags, self._client.flags, strict=True)
            )
        }

    def _judge(self, place: int, flag: Flag, any_listed: bool) -> Assertion | None:
        """Return what changed about ``flag``, which must be unchanged for a time to count."""
        states = [flags[place] for flags in self._instances.values()]
        settled = [state for state in states if state.is_unchanged_for(_debounce_seconds(flag))]
        if flag.code not in self._tracked:
            if not any(flag_state.raised for flag_state in settled):
                return None
            self._tracked.add(flag.code)
            return Assertion.PRESENT
        if not any_listed or len(settled) < len(states) or any(state.raised for state in states):
            return None
        self._tracked.remove(flag.code)
        return Assertion.ABSENT


def _restored(saved: SavedFlag, at: float, now_ms: int) -> _FlagState:
    """Return a flag as the last process saved it: not listed yet, and not changed in the future."""
    since = at - max(0, now_ms - saved.since_ms) / 1000
    return _FlagState(saved.raised, since, since)


def _debounce_seconds(flag: Flag) -> float:
    return _DEBOUNCE_SECONDS.get(flag.code, 0.0)
