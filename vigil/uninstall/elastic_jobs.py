"""Takes the annotations of elastic training off vcjobs (``docs/elastic-training.md``).

The annotation ``distributed`` is MindCluster's and stays.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from advisor.workloads.elastic_conditions import original_of
from contract.documents.elastic_job import CAUSE, KEPT, LEASE, RESTORE, SWITCH
from contract.errors import StoreNotFound, StoreRefused, StoreUnavailable
from contract.validation_texts import decode_text
from elastic.job import read_job
from vigil.elastic.jobs import open_vcjobs, size_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    import msgspec

    from advisor.snapshot import VcJob
    from stores.base import LeaderLease

_OURS = (SWITCH, RESTORE, KEPT, CAUSE)


@contextlib.asynccontextmanager
async def elastic_lease(kubeconfig: Path | None) -> AsyncIterator[LeaderLease]:
    """Give the Lease of the process that starts elastic vcjobs."""
    async with open_vcjobs(kubeconfig) as api:
        yield api.leader_lease(LEASE)


async def plan_jobs(kubeconfig: Path | None) -> tuple[list[VcJob], list[str]]:
    """Return the vcjobs with annotations of ours, and a line for each of another size.

    Raises ``StoreError``.
    """
    jobs: list[VcJob] = []
    async with open_vcjobs(kubeconfig) as api:
        # A cluster without Volcano has no such kind.
        with contextlib.suppress(StoreNotFound):
            jobs = _read_jobs(await api.jobs())
    jobs = [job for job in jobs if any(key in job.annotations for key in _OURS)]
    lines = (_other_size(job) for job in jobs)
    return jobs, [line for line in lines if line]


async def clear_jobs(kubeconfig: Path | None, jobs: Sequence[VcJob]) -> list[str]:
    """Take our annotations off; returns a line for each job that was refused."""
    refused: list[str] = []
    async with open_vcjobs(kubeconfig) as api:
        for job in jobs:
            try:
                await api.annotate(job.namespace, job.name, dict.fromkeys(_OURS))
            except StoreNotFound:
                continue  # It was deleted meanwhile.
            except StoreRefused as error:
                refused.append(f"annotations of vcjob {job.key} stay: {error}")
    return refused


def _read_jobs(raw_jobs: list[msgspec.Raw]) -> list[VcJob]:
    try:
        return [read_job(raw) for raw in raw_jobs]
    except ValueError as error:
        raise StoreUnavailable(
            f"the list of Jobs of Volcano makes no sense: {decode_text(error)}"
        ) from error


def _other_size(job: VcJob) -> str:
    """Return what a job loses with our annotation: its original size is nowhere else."""
    original, size = original_of(job), job.size
    if original is None or size is None:
        return ""
    before, now = size_text(original), size_text(size)
    return "" if before == now else f"vcjob {job.key} has {now}, its original size is {before}"
