"""Jobs that run over a network fault: Volcano ends no pod for one (``docs/spec/consumers.md#E24``).

Pure; the time is passed in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from advisor.checks.ended_vcjobs import FaultUnder
from advisor.report import ElasticAdvice
from advisor.workloads.elastic_conditions import fewest_pods, kept_of, original_of, unmet
from contract.documents.elastic_job import FINISHED, CauseSource
from contract.plural import plural
from elastic.end_cause import cause_on

if TYPE_CHECKING:
    from collections.abc import Iterable

    from advisor.checks.ended_vcjobs import EndedJob
    from advisor.snapshot import VcJob
    from contract.documents.elastic_job import Cause

LASTS_MS = 20_000
"""The scheduler, too, waits so long after a link went down (consumers#1.9)."""
GAP_MS = 10_000
"""The longest pause between two answers; after a longer one, faults count anew."""
COMMANDED_MS = 30_000
"""By then the controller has obeyed a Command; until then no other one is written."""
Key = TypeVar("Key")


class NetworkFault(msgspec.Struct, frozen=True):
    """A network fault under a job that runs, with the size for which there is room after it.

    ``fault`` is the first one, with all nodes. ``is_lasting``: it has stood for 20 s. ``waits_for``
    is a job that was ended and does not run yet, by its key; empty for none.
    """

    fault: FaultUnder
    is_lasting: bool
    advice: ElasticAdvice | None
    waits_for: str = ""

    @property
    def cause(self) -> str:
        """The fault for people."""
        return f"{self.fault.kind} on {self.fault.node}"


def why_left(job: VcJob, fault: NetworkFault) -> str:
    """Return why the job continues in spite of the fault; empty where it is to be ended."""
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
        return f"the advised size is {plural(advice.replicas, 'pod')}, which the job does not allow"
    return ""


def command_on(job: VcJob) -> Cause | None:
    """Return the network fault for which the present run of a job is ended; ``None`` for none."""
    cause = cause_on(job)
    return cause if cause is not None and cause.source is CauseSource.COMMAND else None


def is_under_way(job: VcJob) -> bool:
    """Whether a job was ended for a network fault, or started again, and does not run yet."""
    if job.is_deleted or unmet(job) or job.phase == "Running":
        return False
    if job.phase in ("Terminating", "Terminated"):
        return command_on(job) is not None
    persisted = kept_of(job)
    return persisted is not None and job.started == persisted.start and job.phase not in FINISHED


def network_fault(
    uid: str,
    ended_job: EndedJob,
    standing: ContinuousFaults[tuple[str, FaultUnder]],
    waits_for: str,
) -> NetworkFault:
    """Return the network fault under the job with ``uid``, by how long its faults have lasted."""
    lasting = {
        other.node for other in ended_job.faults if standing.stood_ms((uid, other)) >= LASTS_MS
    }
    nodes = sorted(lasting or {other.node for other in ended_job.faults})
    fault = msgspec.structs.replace(ended_job.faults[0], node=", ".join(nodes))
    return NetworkFault(fault, bool(lasting), ended_job.advice, waits_for)


class ContinuousFaults(Generic[Key]):
    """Faults by a key of the caller. A fault counts from the first answer that showed it.

    It counts until the newest answer was asked for: an answer may be seconds old when it arrives.

    Between two looks that are more than ``gap_ms`` apart a fault may have ended and begun anew, so
    all of them count from the second one.
    """

    def __init__(self, gap_ms: int) -> None:
        self._gap_ms = gap_ms
        self._updated_at_ms = 0
        self._requested_ms = 0
        self._since_ms: dict[Key, int] = {}

    def update(self, standing: Iterable[Key], requested_ms: int, now_ms: int) -> None:
        """Update to the faults of a new answer. Both times are of the steady clock."""
        before = {} if now_ms - self._updated_at_ms > self._gap_ms else self._since_ms
        self._updated_at_ms, self._requested_ms = now_ms, requested_ms
        self._since_ms = {key: before.get(key, now_ms) for key in standing}

    def stood_ms(self, key: Key) -> int:
        """Return how long a fault has lasted; 0 or less for a new or an absent one."""
        return self._requested_ms - self._since_ms.get(key, self._requested_ms)
