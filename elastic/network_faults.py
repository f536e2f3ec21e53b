"""Jobs that run over a network fault: Volcano ends no pod for one (``docs/spec/consumers.md#E24``).

Pure; the time is passed in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from advisor.checks.ended_vcjobs import FaultUnder
from advisor.report import ElasticAdvice
from advisor.workloads.elastic_conditions import ending_of, fewest_pods, kept_of, original_of, unmet
from contract.counted import counted
from contract.documents.elastic_job import FINISHED
from elastic.continuous_faults import ContinuousFaults

if TYPE_CHECKING:
    from collections.abc import Mapping

    from advisor.checks.ended_vcjobs import EndedJob
    from advisor.snapshot import VcJob

LASTS_MS = 20_000
"""The scheduler, too, waits so long after a link went down (consumers#1.9)."""
GAP_MS = 10_000
"""Between two looks: after more than this, what stands counts from now on."""
COMMANDED_MS = 30_000
"""By then the controller has obeyed a Command; until then no other one is written."""


class NetworkFault(msgspec.Struct, frozen=True):
    """A network fault under a job that runs, with the size for which there is room after it.

    ``is_lasting``: it has stood for 20 s. ``waits_for`` is a job that was ended and does not run
    yet, by its key; empty for none.
    """

    cause: str
    is_lasting: bool
    advice: ElasticAdvice | None
    waits_for: str = ""


def why_left(job: VcJob, fault: NetworkFault) -> str:
    """Return why the job goes on over the fault; empty where it is to be ended."""
    original, advice = original_of(job), fault.advice
    if not fault.is_lasting:
        return f"it has not stood for {LASTS_MS // 1000} s"
    if fault.waits_for == job.key:
        return "a Command to end the job was written"
    if fault.waits_for:
        return f"{fault.waits_for} was ended before, and does not run yet"
    if advice is None or advice.replicas is None or original is None:
        return f"there is no other place: {advice.why}" if advice is not None else "no advice"
    if not fewest_pods(job) <= advice.replicas <= original.replicas:
        return (
            f"the advised size is {counted(advice.replicas, 'pod')}, which the job does not allow"
        )
    return ""


def is_under_way(job: VcJob) -> bool:
    """Whether a job was ended for a network fault, or started again, and does not run yet."""
    if job.is_deleted or unmet(job) or job.phase == "Running":
        return False
    if job.phase in ("Terminating", "Terminated"):
        return ending_of(job) is not None
    kept = kept_of(job)
    return kept is not None and job.started == kept.start and job.phase not in FINISHED


class NetworkFaults:
    """Since when jobs run over their faults, as far as this process has seen it without a gap."""

    def __init__(self) -> None:
        self._found: dict[str, EndedJob] = {}
        self._standing = ContinuousFaults[tuple[str, FaultUnder]](GAP_MS)

    def look(self, found: Mapping[str, EndedJob], asked_ms: int, now_ms: int) -> None:
        """Take in what stands under jobs, by their uids. Both times are of the steady clock.

        A fault that has begun anew counts from now on.
        """
        self._found = dict(found)
        standing = ((uid, one) for uid, job in found.items() for one in job.faults)
        self._standing.look(standing, asked_ms, now_ms)

    @property
    def are_any(self) -> bool:
        """Whether a job runs over a network fault."""
        return bool(self._found)

    def under(self, job: VcJob, waits_for: str) -> NetworkFault | None:
        """Return the fault under a job; ``None`` where there is none."""
        found = self._found.get(job.uid)
        if found is None:
            return None
        lasting = {
            one.node for one in found.faults if self._standing.stood_ms((job.uid, one)) >= LASTS_MS
        }
        nodes = sorted(lasting or {one.node for one in found.faults})
        return NetworkFault(
            f"{found.faults[0].kind} on {', '.join(nodes)}", bool(lasting), found.advice, waits_for
        )
