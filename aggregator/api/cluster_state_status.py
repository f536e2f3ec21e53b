"""What stores have of Nodes, pods and PodGroups, for people: known, interrupted, absent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contract.pages.aggregator_status import ClusterStateStatus, ObjectsStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aggregator.inputs.cluster_state import ClusterState
    from aggregator.inputs.multi_store_cache import StoreCache

_MAX_SHARED = 1000


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
