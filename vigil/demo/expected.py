"""What the documents must show of one node, as far as the story has got."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, TypeVar

from vigil.demo.reader import ChipsView, DemoNodeView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vigil.demo.steps import Levels

_Name = TypeVar("_Name")

_STATUS = {"SeparateFault": "UnHealthy", "Separate": "UnHealthy"}


class Expected:
    """The states of one node that are right now: time alone may turn one into another."""

    def __init__(self, chips: range) -> None:
        self._chips = chips
        self._faults: dict[int, tuple[Levels, ...]] = {}
        self._parts: dict[str, str] = {}
        self._ports: dict[str, str] = {}
        self._public: dict[tuple[int | None, str], str] = {}
        self.lost = False

    def chip(self, chip: int, codes: Levels) -> None:
        """From now on ``chip`` has these codes and no other."""
        self._faults[chip] = (codes,)

    def chip_soon(self, chip: int, codes: Levels) -> None:
        """From now on ``chip`` may also have these codes."""
        self._faults[chip] = (*self._faults.get(chip, ({},)), codes)

    def part(self, part: str, level: str | None) -> None:
        """From now on a part of the server has this level, or none."""
        _set(self._parts, part, level)

    def port(self, port: str, level: str | None) -> None:
        """From now on a switch fault has this level, or is over."""
        _set(self._ports, port, level)

    def public(self, chip: int | None, code: str, level: str | None) -> None:
        """From now on a public fault of a chip, or of all, has this level, or is over."""
        _set(self._public, (chip, code), level)

    def differences(self, seen: DemoNodeView | None, *, in_cluster: bool) -> list[str]:
        """Return what is wrong with ``seen``, in words; nothing for one of the right states."""
        if seen is None:
            return ["was never seen"]
        wanted = list(self._views(in_cluster=in_cluster))
        return [] if seen in wanted else list(_words(seen, wanted[-1], self._chips))

    def _views(self, *, in_cluster: bool) -> Iterator[DemoNodeView]:
        status = _worst(self._parts)
        if self.lost and in_cluster:
            status = "UnHealthy"
        chips = tuple(self._faults)
        for codes in itertools.product(*self._faults.values()):
            own = dict(zip(chips, codes, strict=True))
            yield DemoNodeView(
                ChipsView.expected(self._chips, self._with_public(own)).merged()
                if in_cluster
                else ChipsView.expected(self._chips, own),
                status,
                self._parts,
                _worst(self._ports),
                self._ports,
                frozenset() if in_cluster else frozenset(code for _, code in self._public),
            )

    def _with_public(self, own: dict[int, Levels]) -> dict[int, Levels]:
        expected_codes = {chip: dict(codes) for chip, codes in own.items()}
        for (one, code), level in self._public.items():
            for chip in self._chips if one is None else (one,):
                expected_codes.setdefault(chip, {})[code] = level
        return expected_codes


def _set(levels: dict[_Name, str], name: _Name, level: str | None) -> None:
    if level is None:
        levels.pop(name, None)
    else:
        levels[name] = level


def _worst(levels: dict[str, str]) -> str:
    return next((_STATUS[level] for level in levels.values() if level in _STATUS), "Healthy")


def _words(seen: DemoNodeView, wanted: DemoNodeView, chips: range) -> Iterator[str]:
    for chip in sorted(seen.chips.free | seen.chips.unhealthy | set(chips)):
        if _of_chip(seen.chips, chip) != _of_chip(wanted.chips, chip):
            expected = _of_chip(wanted.chips, chip)
            yield f"shows chip {chip} as {_of_chip(seen.chips, chip)}, expected {expected}"
    for what, one, other in (
        ("node status", seen.status, wanted.status),
        ("parts of the server", seen.parts, wanted.parts),
        ("switch status", seen.switch_status, wanted.switch_status),
        ("switch faults", seen.ports, wanted.ports),
        ("public faults", sorted(seen.public), sorted(wanted.public)),
    ):
        if one != other:
            yield f"shows {what}: {one}, expected {other}"


def _of_chip(view: ChipsView, chip: int) -> str:
    lists = (
        ("free", view.free),
        ("unhealthy", view.unhealthy),
        ("unlinked", view.unlinked),
        ("isolated", view.isolated),
    )
    words = [name for name, ids in lists if chip in ids]
    words += [f"{code} {level}" for code, level in sorted(view.faults.get(chip, {}).items())]
    return ", ".join(words) or "in no list"
