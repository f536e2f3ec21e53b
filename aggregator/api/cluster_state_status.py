"""What stores have of Nodes, pods and PodGroups, for people: known, interrupted, absent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aggregator.inputs.cluster_state import ClusterState
    from aggregator.inputs.multi_store_cache import StoreCache

_MAX_SHARED = 1000


class ObjectsStatus(msgspec.Struct, frozen=True):
    """One ``kind`` of objects in one store: ``Nodes``, ``PodGroups``, or ``pods`` that use chips or
    belong to a job.

    ``followed``: the store has this kind at all. ``known``: all objects were listed once; known
    ones are kept during an interruption. ``interrupted``: why no changes arrive now. ``absent``:
    why the store has no such kind.
    """

    store: str
    kind: str
    followed: bool
    known: bool
    objects: int
    interrupted: str | None
    absent: str | None


class ClusterStateStatus(msgspec.Struct, frozen=True):
    """The known Nodes, pods and PodGroups. ``shared_serial_numbers`` name no node, because several
    have them (the first thousand, with the names of those nodes).
    """

    objects: tuple[ObjectsStatus, ...]
    jobs: int
    shared_serial_numbers: dict[str, tuple[str, ...]]


def cluster_state_status(cluster_state: ClusterState, stores: Iterable[str]) -> ClusterStateStatus:
    """Return the status now; ``stores`` are URLs in their order."""
    shared = sorted(cluster_state.shared_serial_numbers.items())[:_MAX_SHARED]
    return ClusterStateStatus(
        objects=tuple(_objects(cluster_state, stores)),
        jobs=len(cluster_state.jobs()),
        shared_serial_numbers={number: tuple(sorted(names)) for number, names in shared},
    )


def _objects(cluster_state: ClusterState, stores: Iterable[str]) -> Iterator[ObjectsStatus]:
    for number, store in enumerate(stores):
        kinds: tuple[tuple[str, StoreCache[Any]], ...] = (
            ("Nodes", cluster_state.nodes_of_store(number)),
            ("pods", cluster_state.pods_of(number)),
            ("PodGroups", cluster_state.groups_of(number)),
        )
        for kind, cache in kinds:
            yield ObjectsStatus(
                store=store,
                kind=kind,
                followed=cache.is_followed,
                known=cache.known,
                objects=len(cache.items),
                interrupted=cache.interrupted,
                absent=cache.absent,
            )
