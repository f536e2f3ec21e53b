"""What is refused of all documents and messages, in every store: named for people, counted for
metrics.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from contract.refusal import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aggregator.merge.pipeline import Pipeline
    from aggregator.public_faults.plugin import PublicFaultsPlugin
    from aggregator.rank_tables.plugin import RankTables
    from stores.base import Store


class RefusedStatus(msgspec.Struct, frozen=True):
    """A refusal that holds: in which store and at which place, why, and what is wrong.

    For the reason ``namespace`` the place is a whole namespace. Documents of nodes that cannot be
    read are with their nodes (``rejected``).
    """

    store: str
    place: str
    reason: Reason
    what: str


class RejectedCount(msgspec.Struct, frozen=True):
    """How often something was refused in a store for a reason since the process began."""

    store: str
    reason: Reason
    number: int


def refused_statuses(
    stores: Mapping[str, Store], public_faults: PublicFaultsPlugin, rank_tables: RankTables
) -> Iterator[RefusedStatus]:
    """Yield the refused heartbeats, messages, and documents of public faults and rank tables."""
    for number, (url, store) in enumerate(stores.items()):
        for refusal in (
            *store.refusals.now,
            *public_faults.rejections.now(number),
            *public_faults.namespaces.refused(number),
            *rank_tables.namespaces.refused(number),
        ):
            yield RefusedStatus(url, refusal.place, refusal.reason, refusal.what)


def rejected_counts(
    stores: Mapping[str, Store],
    pipeline: Pipeline,
    public_faults: PublicFaultsPlugin,
    rank_tables: RankTables,
) -> Iterator[RejectedCount]:
    """Count what was refused in each store, for every reason."""
    for number, (url, store) in enumerate(stores.items()):
        counts = Counter(store.refusals.counts)
        for cache in pipeline.sources[number].caches:
            counts[Reason.UNREADABLE] += cache.rejected_total
        for part in (public_faults, rank_tables):
            counts[Reason.NAMESPACE] += part.namespaces.counts[number]
        for reason in Reason:
            foreign = public_faults.rejections.counts[number, reason]
            yield RejectedCount(url, reason, counts[reason] + foreign)
