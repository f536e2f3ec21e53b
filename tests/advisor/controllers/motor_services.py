"""Services of MindIE Motor with their scaling rule."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from advisor.controllers.motor_instances import creation_advice
from advisor.options import AdvisorOptions, Profile
from advisor.snapshot import AscendJob, ClusterSnapshot, PodGroup, StoredConfigMap

if TYPE_CHECKING:
    from advisor.report import CreateAdvice


Entries = list[dict[str, int]]


S: Entries = [{"g0": 2, "g1": 1}, {"g0": 1, "g1": 1}]


def rule_text(entries: Entries, version: str = "1.0") -> str:
    """Return a rule with two servers in each instance."""
    listed = [
        {
            "group_list": [
                {"group_name": name, "group_num": str(count), "server_num_per_group": "2"}
                for name, count in entry.items()
            ]
        }
        for entry in entries
    ]
    return json.dumps({"version": version, "elastic_scaling_list": listed})


def labels_of(group: str) -> dict[str, str]:
    """Return the labels of an instance of ``group``."""
    return {"mind-cluster/scaling-rule": "rule", "mind-cluster/group-name": group, "jobID": "svc"}


def service(entries: Entries, running: dict[str, int], waiting: tuple[str, ...]) -> ClusterSnapshot:
    """Return a service with so many running instances, and one job without pods of each of
    ``waiting``."""
    groups: list[PodGroup] = []
    jobs: list[AscendJob] = []
    for name in waiting:
        count = sum(job.name.startswith(f"{name}-new") for job in jobs)
        job = AscendJob(
            "ns", f"{name}-new{count}", f"u-{name}-{count}", labels_of(name), replicas=2
        )
        jobs.append(job)
        groups.append(PodGroup("ns", f"{job.name}-{job.uid}", "", "Inqueue", 2, labels=job.labels))
    for name, count in running.items():
        groups += [
            PodGroup("ns", f"{name}-{index}", "", "Running", 2, labels=labels_of(name))
            for index in range(count)
        ]
    configmap = StoredConfigMap("ns", "rule", {"elastic_scaling.json": rule_text(entries)})
    return ClusterSnapshot(
        0, podgroups=tuple(groups), ascend_jobs=tuple(jobs), configmaps=(configmap,)
    )


def advised(snapshot: ClusterSnapshot, profile: Profile) -> dict[str, CreateAdvice]:
    """Return the advice by the name of the job."""
    return {one.name: one for one in creation_advice(snapshot, AdvisorOptions(profile=profile))}
