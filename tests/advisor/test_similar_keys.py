"""Keys of labels that are almost a known one, by letters or by word parts."""

from __future__ import annotations

import pytest

from advisor.lint.labels import ANNOTATIONS, LABELS
from advisor.similar_words import nearest_key


@pytest.mark.parametrize(
    ("key", "known"),
    [
        ("pod-reschedule", "pod-rescheduling"),
        ("pod_reschedule", "pod-rescheduling"),
        ("fault-schedule", "fault-scheduling"),
        ("fault-retry", "fault-retry-times"),
        ("retry-times", "fault-retry-times"),
        ("fault-retry-time", "fault-retry-times"),
        ("pod-fault-rescheduling", "pod-rescheduling"),
        ("process-recover", "process-recover-enable"),
        ("huawei.com/recover_policy", "huawei.com/recover_policy_path"),
        ("recover_policy", "huawei.com/recover_policy_path"),
        ("elastic-schedule", "elastic-scheduling"),
    ],
)
def test_key_with_a_word_part_less_or_more_is_a_typo(key: str, known: str) -> None:
    assert nearest_key(key, LABELS + ANNOTATIONS) == known


@pytest.mark.parametrize(
    "key",
    [
        *("app", "fault", "scheduling", "pod", "pod-template-hash", "pod-group", "min-available"),
        *("example.com/fault-retry", "volcano.sh/job-name", "app.kubernetes.io/name", "framework"),
        *(
            "ring-controller.atlas",
            "host-arch",
            "accelerator-type",
            "tor",
            "component",
            "role-name",
        ),
        *("controller-revision-hash", "job-name", "model-name", "fault-scheduling"),
    ],
)
def test_other_keys_are_no_typos(key: str) -> None:
    assert nearest_key(key, LABELS + ANNOTATIONS) is None
