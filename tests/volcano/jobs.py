"""Jobs on an API server with Volcano's real controller and three nodes of eight chips."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.elastic.jobs import as_written, vcjob
from tests.parts.deadlines import wait_until
from tests.parts.volcano import GROUPS, JOBS, PODS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.parts.controlplane import ControlPlane
    from tests.volcano.surroundings import Surroundings


class Real:
    """Jobs, and what is asked about them."""

    def __init__(self, plane: ControlPlane, around: Surroundings) -> None:
        self.plane = plane
        self.around = around

    def train(self, name: str, replicas: int = 2, **changes: Any) -> dict[str, Any]:
        """Create a job with these fields in its spec, and wait until it runs."""
        item = as_written(vcjob(name, replicas, phase=""))
        item["spec"] |= changes
        made: dict[str, Any] = self.plane.request("POST", JOBS, item)
        self.around.until(name, "Running")
        return made

    def sees(self, happened: Callable[[], bool], what: str) -> None:
        """Wait for something."""
        wait_until(happened, what, 20)

    def delete_pods(self, name: str) -> None:
        """Delete all pods of a job with their grace, as an eviction does."""
        for pod in self.around.pods(name):
            self.plane.ask("DELETE", f"{PODS}/{pod['metadata']['name']}")

    def start_again(self, name: str, replicas: int) -> None:
        """Write the size and the phase, in this order."""
        task = [
            {"op": "add", "path": "/spec/tasks/0/replicas", "value": replicas},
            {"op": "add", "path": "/spec/tasks/0/minAvailable", "value": replicas},
            {"op": "add", "path": "/spec/minAvailable", "value": replicas},
        ]
        status, answer = self.patch(name, task)
        assert status == 200, answer
        phase = {"status": {"state": {"phase": "Pending"}}}
        self.plane.request("PATCH", f"{JOBS}/{name}/status", phase)

    def patch(self, name: str, operations: list[dict[str, Any]]) -> tuple[int, Any]:
        """Ask for a JSON patch of a job; status and answer."""
        kind = "application/json-patch+json"
        return self.plane.ask("PATCH", f"{JOBS}/{name}", operations, kind)  # type: ignore[arg-type]

    def group(self, made: dict[str, Any]) -> dict[str, Any] | None:
        """Return the PodGroup of a job."""
        metadata = made["metadata"]
        status, found = self.plane.ask("GET", f"{GROUPS}/{metadata['name']}-{metadata['uid']}")
        return found if status == 200 else None

    def stored_retries(self, name: str) -> int:
        """Return the stored ``maxRetry``."""
        found: int = self.around.job(name)["spec"]["maxRetry"]
        return found

    def clean(self) -> None:
        """Delete all jobs."""
        self.around.holds = set()
        for one in self.plane.request("GET", JOBS)["items"]:
            name = one["metadata"]["name"]
            self.plane.request("DELETE", f"{JOBS}/{name}")
            self.delete_pods(name)
            self.sees(lambda name=name: not self.around.pods(name), "its pods stay")  # type: ignore[misc]
            self.plane.ask("DELETE", f"{GROUPS}/{name}-{one['metadata']['uid']}")
