"""The label by which schedulers read relation faults (``docs/spec/consumers.md#1.10``).

Desired labels of pods; the writer calls this again until none is missing. A label is never removed:
the pod was hit. ``Separate`` is never made ``SubHealth`` again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aggregator.jobs.relation_tables import SEPARATE
from aggregator.jobs.relations import worst

if TYPE_CHECKING:
    from aggregator.jobs.index import PodIndex
    from aggregator.jobs.relation_state import RelationState

LABEL = "fault-type"


class PodLabel(msgspec.Struct, frozen=True):
    """The value that the label ``fault-type`` of a pod is to have."""

    namespace: str
    name: str
    uid: str
    value: str


def wanted_labels(book: RelationState, index: PodIndex) -> tuple[PodLabel, ...]:
    """Return the labels that are desired and not there."""
    wanted: list[PodLabel] = []
    for job in sorted(book.jobs):
        results: dict[tuple[str, str], list[str]] = {}
        for place, track in book.tracks(job).items():
            for uid in track.pods if track.result else ():
                results.setdefault((place.node, uid), []).append(track.result)
        pods = {pod.uid: pod for node, _ in results for pod in index.pods(job, node)}
        for (_, uid), strategies in sorted(results.items()):
            pod, value = pods.get(uid), worst(strategies)
            if pod is not None and pod.labels.get(LABEL) not in (value, SEPARATE):
                wanted.append(PodLabel(pod.namespace, pod.name, uid, value))
    return tuple(wanted)
