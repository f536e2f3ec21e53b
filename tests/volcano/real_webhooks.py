"""What the real webhooks of jobs take and change (consumers#2.9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.elastic.jobs import CHIPS
from tests.volcano.programs import webhooks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.volcano.jobs import Real

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]

_AMOUNT = f"/spec/tasks/0/template/spec/containers/0/resources/{{}}/{CHIPS.replace('/', '~1')}"


@pytest.fixture(scope="module")
def in_force(cluster: Real, volcano_built: Path) -> Iterator[Real]:
    with webhooks(cluster.plane, volcano_built):
        yield cluster


@pytest.fixture
def judged(in_force: Real) -> Iterator[Real]:
    """Return the cluster, with the webhooks in force."""
    yield in_force
    in_force.clean()


def test_a_written_max_retry_of_0_is_stored_as_3(judged: Real) -> None:
    policies = [{"event": "PodEvicted", "action": "RestartJob"}]
    judged.train("retries", maxRetry=0, policies=policies)
    assert judged.stored_retries("retries") == 3


def test_sizes_may_change_and_chips_may_not(judged: Real) -> None:
    judged.train("sizes", 3)
    judged.delete_pods("sizes")
    judged.around.until("sizes", "Terminated")
    amounts = [
        {"op": "add", "path": _AMOUNT.format(field), "value": "4"}
        for field in ("limits", "requests")
    ]
    status, answer = judged.patch("sizes", amounts)
    assert (status // 100, "job updates may not change fields" in str(answer)) == (4, True), answer
    judged.start_again("sizes", 2)
    judged.around.until("sizes", "Running")
    assert len(judged.around.pods("sizes")) == 2
