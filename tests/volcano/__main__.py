"""Elastic training with Volcano's real job controller; kubelets and scheduler are stood in for."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.elastic.bed import Bed
from tests.parts.controlplane import ControlPlane
from tests.parts.processes import Running
from tests.parts.volcano import GROUPS, JOBS, PODS, Volcano

if TYPE_CHECKING:
    from collections.abc import Iterator

_TIMES = 8
_QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Surroundings(Volcano):
    """The scheduler lets PodGroups in, kubelets run pods; the controller is the real one."""

    def _step(self) -> None:
        self._run_pods(self.plane.request("GET", PODS)["items"])
        for group in self.plane.request("GET", GROUPS)["items"]:
            if group.get("status", {}).get("phase", "Pending") == "Pending":
                path = f"{GROUPS}/{group['metadata']['name']}"
                self.plane.ask("PATCH", path, {"status": {"phase": "Inqueue"}})


def _install(plane: ControlPlane, built: Path) -> None:
    for file in sorted(built.glob("*.yaml")):
        for one in yaml.safe_load_all(file.read_text()):
            if one is not None:
                plane.request("POST", _DEFINITIONS, one)
    until = time.monotonic() + 20
    for path in (JOBS, GROUPS, _QUEUES):
        while plane.ask("GET", path)[0] != 200:
            assert time.monotonic() < until, f"{path} is not served"
            time.sleep(0.1)
    api = "scheduling.volcano.sh/v1beta1"
    queue = {"apiVersion": api, "kind": "Queue", "metadata": {"name": "default"}}
    plane.request("POST", _QUEUES, queue | {"spec": {"weight": 1, "reclaimable": True}})
    plane.request("PATCH", f"{_QUEUES}/default/status", {"status": {"state": "Open"}})


@contextlib.contextmanager
def _bed(directory: Path, built: Path) -> Iterator[Bed]:
    (directory / "plane").mkdir()
    with ControlPlane(directory / "plane") as plane:
        _install(plane, built)
        controller = Running(
            [
                built / "vc-controller-manager",
                f"--kubeconfig={plane.kubeconfig}",
                "--enable-healthz=false",
            ],
            directory / "controller.log",
        )
        try:
            bed = Bed(directory, Surroundings(plane), 3)
            elastic = bed.elastic("daemon", "--act")
            with bed.volcano:
                elastic.start()
                try:
                    yield bed
                finally:
                    elastic.stop()
                    bed.stop()
        finally:
            controller.stop()


def _restarted(bed: Bed, name: str, action: str) -> float:
    """Have a job lose a chip; returns the seconds from its last pod to its new PodGroup."""
    uid = bed.train(name, 3, action=action)
    bed.report("n0", unhealthy=(3,))
    time.sleep(1)
    bed.volcano.holds = {f"{name}-w-2"}
    bed.volcano.evict(name)
    bed.sees(lambda: len(bed.volcano.pods(name)) == 1, "two pods end")
    time.sleep(0.5)
    assert bed.size(name) == (3, 3), "it is written while a pod lives"
    bed.volcano.holds = set()
    bed.sees(lambda: not bed.volcano.pods(name), "the last pod ends")
    began = time.monotonic()
    bed.sees(lambda: any(uid in g["metadata"]["name"] for g in _groups(bed)), "no PodGroup")
    seconds = time.monotonic() - began
    bed.volcano.until(name, "Running")
    job = bed.volcano.job(name)
    assert (job["metadata"]["uid"], bed.size(name)) == (uid, (2, 2))
    _end(bed, name)
    bed.report("n0")
    return seconds


def _groups(bed: Bed) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = bed.plane.request("GET", GROUPS)["items"]
    return found


def _end(bed: Bed, name: str) -> None:
    bed.plane.request("DELETE", f"{JOBS}/{name}?propagationPolicy=Background")
    for pod in bed.volcano.pods(name):
        bed.plane.ask("DELETE", f"{PODS}/{pod['metadata']['name']}")
    bed.sees(lambda: not bed.volcano.pods(name), "pods stay")
    for group in _groups(bed):
        bed.plane.ask("DELETE", f"{GROUPS}/{group['metadata']['name']}")


def _failed_by_itself(bed: Bed) -> None:
    """A start over pods that failed by themselves would fail at once: they are removed first."""
    uid = bed.train("self", 2)
    pod = bed.volcano.pods("self")[0]
    path = f"{PODS}/{pod['metadata']['name']}"
    chips = {"annotations": {"huawei.com/AscendReal": "Ascend910-3"}}
    bed.plane.request("PATCH", path, {"metadata": chips})
    bed.report(pod["spec"]["nodeName"], unhealthy=(3,))
    time.sleep(1)
    for one in bed.volcano.pods("self"):
        path = f"{PODS}/{one['metadata']['name']}/status"
        bed.plane.request("PATCH", path, {"status": {"phase": "Failed"}})
    bed.volcano.until("self", "Running", 30)
    bed.sees(lambda: _all_run(bed), "it runs")
    assert bed.volcano.job("self")["metadata"]["uid"] == uid


def _all_run(bed: Bed) -> bool:
    phases = [pod["status"]["phase"] for pod in bed.volcano.pods("self")]
    return phases == ["Running"] * 2 and bed.size("self") == (2, 2)


def main() -> int:
    """Run the lane; an ``AssertionError`` says what is wrong."""
    script = Path(__file__).with_name("build.sh")
    built = Path(
        subprocess.run([script], check=True, capture_output=True, text=True).stdout.strip()
    )
    seconds = []
    with tempfile.TemporaryDirectory() as directory, _bed(Path(directory), built) as bed:
        actions = ("TerminateJob", "RestartJob", "AbortJob")
        for number in range(_TIMES):
            action = actions[number % len(actions)]
            seconds.append(_restarted(bed, f"j{number}", action))
            print(f"{action}: PodGroup after {seconds[-1]:.2f} s", flush=True)
        _failed_by_itself(bed)
        print("pods that failed by themselves were removed first", flush=True)
    middle = statistics.median(seconds)
    print(f"{_TIMES} of {_TIMES} jobs started again; PodGroup after {middle:.2f} s (p50)")
    return 0 if middle <= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
