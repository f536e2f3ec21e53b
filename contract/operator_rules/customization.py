"""``faultCustomization.json``: rules that raise the level of a code.

Source: ``docs/spec/device-plugin.md#3.3`` to 3.5. What the Device Plugin skips without a word is a
``Problem`` here, with the same effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from contract.codes.chip_codes import code_of
from contract.codes.levels import ChipLevel
from contract.codes.policies import DurationPolicy, FrequencyPolicy
from contract.errors import FoundProblems, Problem, quoted
from contract.go.decode import GoStruct, Int64, decode_all, refuse
from contract.go.dropped import dropped
from contract.operator_rules.fault_codes import number_of
from contract.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CUSTOMIZATION_KEY = "faultCustomization.json"

NEVER_SECONDS = 2**32
"""The ``ReleaseTimeWindow`` that means that only an operator releases."""

# Only a frequency rule may separate a chip until an operator acts (device-plugin#3.4, 3.5).
_DURATION_LEVELS = [
    level.value
    for level in ChipLevel
    if level not in (ChipLevel.NORMAL_NPU, ChipLevel.MANUALLY_SEPARATE_NPU)
]
_FREQUENCY_LEVELS = [ChipLevel.MANUALLY_SEPARATE_NPU.value, *_DURATION_LEVELS]
_READ_SECONDS, _RESET_SECONDS, _HEALING_SECONDS = (5, 90), (60, 180), (1, 30)
_GRACE_SECONDS = {
    "WaitProcessReadCMTime": (*_READ_SECONDS, 30),
    "WaitDeviceResetTime": (*_RESET_SECONDS, 150),
    "WaitFaultSelfHealingTime": (*_HEALING_SECONDS, 15),
}
_WINDOW_SECONDS = (60, 864_000)
_RELEASE_SECONDS = (60, NEVER_SECONDS)
_TIMES = (1, 100)
_FAULT_SECONDS = (0, 600)
_RECOVER_SECONDS = (0, 86_400)


class _Grace(GoStruct, frozen=True):
    WaitProcessReadCMTime: Annotated[Int64, Meta(extra={"limits": _READ_SECONDS})] = 0
    WaitDeviceResetTime: Annotated[Int64, Meta(extra={"limits": _RESET_SECONDS})] = 0
    WaitFaultSelfHealingTime: Annotated[Int64, Meta(extra={"limits": _HEALING_SECONDS})] = 0


class _Frequency(GoStruct, frozen=True, rename="pascal"):
    event_id: list[str] | None = None
    time_window: Annotated[Int64, Meta(extra={"limits": _WINDOW_SECONDS})] = 0
    times: Annotated[Int64, Meta(extra={"limits": _TIMES})] = 0
    fault_handling: str = ""
    release_time_window: Annotated[Int64, Meta(extra={"limits": _RELEASE_SECONDS})] = 0


class _Duration(GoStruct, frozen=True, rename="pascal"):
    event_id: list[str] | None = None
    fault_timeout: Annotated[Int64, Meta(extra={"limits": _FAULT_SECONDS})] = 0
    recover_timeout: Annotated[Int64, Meta(extra={"limits": _RECOVER_SECONDS})] = 0
    fault_handling: str = ""


class _Customization(GoStruct, frozen=True, rename="pascal"):
    grace_tolerance: _Grace = _Grace()
    fault_frequency: list[_Frequency] | None = None
    fault_duration: list[_Duration] | None = None


class Customization(Record, frozen=True):
    """The rules by code as on the wire."""

    frequencies: Mapping[str, FrequencyPolicy]
    durations: Mapping[str, DurationPolicy]
    problems: tuple[Problem, ...]


def read_customization(text: str, spellings: Mapping[int, str]) -> Customization:
    """Read a ``faultCustomization.json``.

    ``spellings`` is how the level tables write the number of a code, in lower case: an id that is
    written in another way never matches (device-plugin#2.5). Raises ``DocumentError`` for a text
    that cannot be decoded, of which nothing counts.
    """
    read, wrong = decode_all(text, _Customization, CUSTOMIZATION_KEY)
    problems = FoundProblems()
    problems.extend(dropped(text, _Customization))
    problems.extend(_grace_problems(read.grace_tolerance))
    # A copy, since ids of rules register their spelling as well (device-plugin#2.5).
    spelled = dict(spellings)
    frequencies: dict[str, FrequencyPolicy] = {}
    owners: dict[str, str] = {}
    for index, entry in enumerate(read.fault_frequency or ()):
        where = f"$.FaultFrequency[{index}]"
        if not problems.extend(_frequency_problems(entry, where)):
            policy = _frequency_policy(entry)
            codes = _codes(entry.event_id, where, owners, spelled, problems)
            frequencies.update(dict.fromkeys(codes, policy))
    durations: dict[str, DurationPolicy] = {}
    # A code may have a rule of each kind (device-plugin#3.5).
    owners = {}
    for index, rule in enumerate(read.fault_duration or ()):
        where = f"$.FaultDuration[{index}]"
        if not problems.extend(_duration_problems(rule, where)):
            level = ChipLevel(rule.fault_handling)
            times_ms = (rule.fault_timeout * 1000, rule.recover_timeout * 1000)
            codes = _codes(rule.event_id, where, owners, spelled, problems)
            durations.update(dict.fromkeys(codes, DurationPolicy(*times_ms, level)))
    refuse(CUSTOMIZATION_KEY, wrong, problems)
    return Customization(frequencies, durations, problems.all())


def _frequency_policy(entry: _Frequency) -> FrequencyPolicy:
    # 0 or a missing number means never (device-plugin#3.4).
    release_seconds = entry.release_time_window or NEVER_SECONDS
    return FrequencyPolicy(
        entry.time_window,
        entry.times,
        ChipLevel(entry.fault_handling),
        None if release_seconds == NEVER_SECONDS else release_seconds * 1000,
    )


def _codes(
    ids: list[str] | None,
    where: str,
    owners: dict[str, str],
    spellings: dict[int, str],
    problems: FoundProblems,
) -> list[str]:
    """Return the codes that a valid entry comes to own."""
    codes = []
    for index, text in enumerate(ids or ()):
        here, name = f"{where}.EventId[{index}]", text.lower()
        # The first valid entry that names an id owns it (device-plugin#3.4).
        if name in owners:
            message = f"{quoted(text)!r} is in {owners[name]} already, which stays"
            problems.add(Problem(here, message))
            continue
        owners[name] = f"{where}.EventId"
        number = number_of(text)
        # The first spelling of a number stays; an id counts in that one only (device-plugin#2.5).
        written = None if number is None else spellings.setdefault(number, name)
        try:
            code = None if number is None else code_of(number)
        except ValueError:
            code = None
        if code is None:
            message = (
                f"{quoted(text)!r} is not a valid fault code (hexadecimal, without 0x): it never "
                "matches"
            )
            problems.add(Problem(here, message))
        elif written != name:
            message = f"{quoted(text)!r} never matches: this code is written {code}"
            problems.add(Problem(here, message))
        else:
            codes.append(code)
    return codes


def _frequency_problems(entry: _Frequency, where: str) -> Iterator[Problem]:
    yield from _id_problems(entry.event_id, where)
    yield from _range_problems(entry.time_window, *_WINDOW_SECONDS, f"{where}.TimeWindow")
    release_seconds = entry.release_time_window or NEVER_SECONDS
    yield from _range_problems(release_seconds, *_RELEASE_SECONDS, f"{where}.ReleaseTimeWindow")
    yield from _range_problems(entry.times, *_TIMES, f"{where}.Times")
    yield from _level_problems(entry.fault_handling, _FREQUENCY_LEVELS, where)
    manual = entry.fault_handling == ChipLevel.MANUALLY_SEPARATE_NPU
    if not manual and release_seconds == NEVER_SECONDS:
        message = "is missing: only ManuallySeparateNPU may last for ever; the entry is skipped"
        yield Problem(f"{where}.ReleaseTimeWindow", message)


def _duration_problems(entry: _Duration, where: str) -> Iterator[Problem]:
    yield from _id_problems(entry.event_id, where)
    yield from _range_problems(entry.fault_timeout, *_FAULT_SECONDS, f"{where}.FaultTimeout")
    yield from _range_problems(entry.recover_timeout, *_RECOVER_SECONDS, f"{where}.RecoverTimeout")
    yield from _level_problems(entry.fault_handling, _DURATION_LEVELS, where)


def _id_problems(ids: list[str] | None, where: str) -> Iterator[Problem]:
    if not ids:
        yield Problem(f"{where}.EventId", "names no code; the entry is skipped")


def _range_problems(value: int, low: int, high: int, where: str) -> Iterator[Problem]:
    if not low <= value <= high:
        yield Problem(where, f"{value} is not from {low} to {high}; the entry is skipped")


def _level_problems(level: str, levels: list[str], where: str) -> Iterator[Problem]:
    if level not in levels:
        message = f"{quoted(level)!r} is none of {', '.join(levels)}; the entry is skipped"
        yield Problem(f"{where}.FaultHandling", message)


def _grace_problems(grace: _Grace) -> Iterator[Problem]:
    """Yield values out of their range, which are replaced; none of them has an effect (K27)."""
    for name, (low, high, default) in _GRACE_SECONDS.items():
        value = getattr(grace, name)
        # 0 counts as a missing value, for which there is a default (device-plugin#3.3).
        if value and not low <= value <= high:
            message = f"{value} is not from {low} to {high}; {default} is taken (without effect)"
            yield Problem(f"$.GraceTolerance.{name}", message)
