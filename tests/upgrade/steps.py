"""The order in which daemons are upgraded, and what must be true after each step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.upgrade.site import KEPT, Site

if TYPE_CHECKING:
    from pathlib import Path

    from tests.upgrade.site import RawStore

VERSIONS = sorted(path.name for path in KEPT.iterdir() if (path / "directory.tar.gz").exists())
"""Releases whose state is kept."""


def upgrade(directory: Path, built: Path, store: RawStore, version: str, first: str) -> None:
    """Start today's daemons on what ``version`` kept, ``first`` before the other, and again.

    After each step the documents are those of before, and so are the faults at the aggregator.
    ``vigil prove`` finds no fault that was lost or made up.
    """
    site = Site(directory, built, store)
    try:
        faults = site.take(version)
        documents = site.documents()
        start = {"agents": site.start_agents, "aggregator": site.aggregator.start}
        stop = {"agents": site.stop_agents, "aggregator": site.aggregator.stop}
        order = sorted(start, key=lambda name: name != first)
        for name in order:
            start[name]()
            site.wait_until_equal(documents)
        # The way back is a restart while one version alone has kept state.
        for name in reversed(order):
            stop[name]()
            start[name]()
            site.wait_until_equal(documents)
        assert site.faults() == faults
        # Another program reported one, one is a separation by hand, and one more was over before.
        proof = site.proof()
        assert not proof["gaps"], proof
        assert proof["proved"] == len(faults) - 1, proof
    finally:
        site.close()
