"""How often a failed process is handled, and what ends that earlier."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.lint.finding import finding
from advisor.lint.workload import WorkloadForm
from advisor.similar_words import nearest
from contract.scheduling import APP, FAULT_RETRY_TIMES, MINDIE_APPS, go_integer
from contract.sentences import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from advisor.lint.finding import LintFinding, PlacedText
    from advisor.lint.workload import Workload, WorkloadGroup

_NEVER = "Never"
_FORMS = (WorkloadForm.VCJOB, WorkloadForm.ASCENDJOB, WorkloadForm.STORM)
"""Those where a pod can fail: the others always restart their containers (consumers#2.9)."""


def retries(text: PlacedText | None) -> int:
    """Return how many times a failed process is handled."""
    return (go_integer(text.value) or 0) if text is not None else 0


def _is_mindie(group: WorkloadGroup) -> bool:
    """Whether it belongs to MindIE, whose processes end on an order of their controller.

    Volcano sees that in the last state of the container, which the kubelet starts again.
    """
    app = group.label(APP)
    return app is not None and (
        app.value in MINDIE_APPS or nearest(app.value, MINDIE_APPS) is not None
    )


def judge(workload: Workload, group: WorkloadGroup) -> Iterator[LintFinding]:
    """Return what ends retries, or keeps Volcano from seeing what would need one."""
    label = group.label(FAULT_RETRY_TIMES)
    count = retries(label)
    backoff = workload.backoff
    limit = go_integer(backoff.value) if backoff is not None else None
    # A backoffLimit of 0 sets no limit (consumers#3.6).
    if backoff is not None and limit is not None and 0 < limit < count:
        place = workload.place.at_text(backoff)
        words = {"retries": count, "limit": limit, "next": limit + 1}
        yield finding("RETRY_VS_BACKOFF", place, **words)
    if count <= 0 or workload.form not in _FORMS or _is_mindie(group):
        return
    for role in group.roles:
        is_default = role.restart is None and workload.form is not WorkloadForm.ASCENDJOB
        if is_default or (role.restart is not None and role.restart.value != _NEVER):
            policy = (
                role.restart.value if role.restart is not None else sentence("Always, the default,")
            )
            line = role.restart.line if role.restart is not None else role.spec_line
            place = workload.place.at(line, role.file)
            yield finding("RESTART_POLICY_HIDES_FAILURE", place, policy=policy)
