"""The states of a node that its documents may show at this step of the demo."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

from vigil.demo.reader import ChipsView, DemoNodeView, HealthView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vigil.demo.steps import Levels

_STATUS = {"SeparateFault": "UnHealthy", "Separate": "UnHealthy"}


class Expected:
    """The expected states of one node; time alone may turn one into another.

    ``faults`` are by chip the sets of codes that it may have. ``parts`` and ``ports`` are levels of
    the server's parts and of switch faults, ``public`` those of public faults by chip (``None``:
    all chips) and code; ``None`` where one is over. ``lost`` has each answer to whether
    cluster-info may publish the node as lost.
    """

    def __init__(self, chips: range) -> None:
        self._chips = chips
        self.faults: dict[int, tuple[Levels, ...]] = {}
        self.parts: dict[str, str | None] = {}
        self.ports: dict[str, str | None] = {}
        self.public: dict[tuple[int | None, str], str | None] = {}
        self.lost: tuple[bool, ...] = (False,)

    def chip_soon(self, chip: int, codes: Levels) -> None:
        """Expect that ``chip`` may also have these codes from now on."""
        self.faults[chip] = (*self.faults.get(chip, ({},)), codes)

    def differences(self, seen: DemoNodeView | None, *, in_cluster: bool) -> list[str]:
        """Return what is wrong with ``seen``, in words; nothing for one of the right states."""
        if seen is None:
            return ["was never seen"]
        wanted = list(self._views(in_cluster=in_cluster))
        # The last one is the state to which time alone leads.
        return [] if seen in wanted else list(_words(seen, wanted[-1], self._chips))

    def _views(self, *, in_cluster: bool) -> Iterator[DemoNodeView]:
        host, switches = _health(self.parts), _health(self.ports)
        # A lost node is published by its host entry alone; its chips keep their entries.
        servers = [
            replace(host, status="UnHealthy") if lost and in_cluster else host for lost in self.lost
        ]
        public = frozenset(code for (_, code), level in self.public.items() if level is not None)
        chips = tuple(self.faults)
        of_chips = list(itertools.product(*self.faults.values()))
        for server, codes in itertools.product(servers, of_chips):
            own = dict(zip(chips, codes, strict=True))
            yield DemoNodeView(
                ChipsView.expected(self._chips, self._with_public(own)).merged()
                if in_cluster
                else ChipsView.expected(self._chips, own),
                server,
                switches,
                frozenset() if in_cluster else public,
            )

    def _with_public(self, own: dict[int, Levels]) -> dict[int, Levels]:
        expected_codes = {chip: dict(codes) for chip, codes in own.items()}
        for (node, code), level in self.public.items():
            if level is not None:
                for chip in self._chips if node is None else (node,):
                    expected_codes.setdefault(chip, {})[code] = level
        return expected_codes


def _health(levels: dict[str, str | None]) -> HealthView:
    faults = {name: level for name, level in levels.items() if level is not None}
    statuses = (_STATUS[level] for level in faults.values() if level in _STATUS)
    return HealthView(next(statuses, "Healthy"), faults)


def _words(seen: DemoNodeView, wanted: DemoNodeView, chips: range) -> Iterator[str]:
    for chip in sorted(seen.chips.free | seen.chips.unhealthy | set(chips)):
        if _of_chip(seen.chips, chip) != _of_chip(wanted.chips, chip):
            expected = _of_chip(wanted.chips, chip)
            yield f"shows chip {chip} as {_of_chip(seen.chips, chip)}, expected {expected}"
    for text, node, other in (
        ("node status", seen.server.status, wanted.server.status),
        ("parts of the server", seen.server.faults, wanted.server.faults),
        ("switch status", seen.switches.status, wanted.switches.status),
        ("switch faults", seen.switches.faults, wanted.switches.faults),
        ("public faults", sorted(seen.public), sorted(wanted.public)),
    ):
        if node != other:
            yield f"shows {text}: {node}, expected {other}"


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
