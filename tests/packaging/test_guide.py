"""The install guide for bare metal, line by line: every command of it is run here.

In a tree of its own: absolute paths lead there, programs that would change this machine are
replaced by ones that write down what they were asked, and the packages come from the environment
that runs the tests. The broker, the scan, the agent and the emulator are real.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.parts.deadlines import patience
from tests.parts.processes import Running, free_ports, program

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs/installation.md"
SYSTEM = ("systemctl", "journalctl", "systemd-sysusers", "apt-get", "curl")
PLACES = ("/opt/", "/etc/", "/usr/lib/", "/usr/local/bin/", "/root/", "/srv/", "/var/lib/")


_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
_INSTALL = """given=()
while [ $# -gt 0 ]; do
    case $1 in -o | -g) shift 2 ;; *) given+=("$1"); shift ;; esac
done
exec {} "${{given[@]}}"
"""


def blocks() -> dict[str, list[str]]:
    """Return the commands of each step, by its heading."""
    below = GUIDE.read_text().split("\n## On a server without Kubernetes\n")[1]
    below = below.partition("\n## ")[0]
    steps: dict[str, list[str]] = {}
    for part in re.split(r"^### ", below, flags=re.MULTILINE)[1:]:
        heading, _, text = part.partition("\n")
        steps[heading.split(",")[0]] = _BLOCK.findall(text)
    return steps


class Machine:
    """A tree in which the guide is followed."""

    def __init__(self, place: Path, port: int) -> None:
        self.place = place
        self.port = port
        self.asked = place / "asked"
        programs = place / "programs"
        programs.mkdir(parents=True)
        for name in SYSTEM:
            self._program(name, f'echo {name} "$@" >> {self.asked}\n')
        # Users and groups of packages and of systemd-sysusers may not be on this machine.
        self._program("install", _INSTALL.format(program("install")))
        self._program("vigil", f'exec "{sys.executable}" -m vigil "$@"\n')
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("VIGIL_")
        } | {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        for folder in ("etc/systemd/system", "etc/mosquitto/conf.d", "usr/local/bin", "srv"):
            (place / folder).mkdir(parents=True)

    def _program(self, name: str, text: str) -> None:
        file = self.place / "programs" / name
        file.write_text(f"#!/bin/bash\n{text}")
        file.chmod(0o755)

    def here(self, text: str) -> str:
        """Replace absolute paths and the broker in a text of the guide by those of this test."""
        for there in PLACES:
            text = re.sub(rf"(?<![\w/.]){there}", f"{self.place}{there}", text)
        text = text.replace("broker.example:8883", f"localhost:{self.port}")
        return text.replace("listener 8883", f"listener {self.port} 127.0.0.1")

    def do(self, commands: str) -> str:
        """Run a block of the guide; what it prints."""
        result = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self.here(commands)],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=patience(60),
        )
        assert result.returncode == 0, f"{commands}\n{result.stdout}\n{result.stderr}"
        return result.stdout

    def settle(self) -> None:
        """Make the installed configurations name the places of this tree."""
        for pattern in ("*.toml", "npu-vigil.conf"):
            for file in (self.place / "etc").rglob(pattern):
                text = file.read_text()
                if str(self.place) not in text:
                    file.write_text(self.here(text))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (port,) = free_ports(1)
    return Machine(tmp_path / "machine", port)


def is_of_packages(line: str) -> bool:
    """Return what makes the environment of its own, which the tests have already."""
    return line.startswith("python3 -m venv") or "/bin/pip install" in line


WELL = re.compile(r": (all well|1 warning: clock)$", re.MULTILINE)
"""The end of a scan. The machine that runs the tests may have no synchronized clock."""


@pytest.mark.timeout(120)
def test_the_guide_can_be_followed_line_by_line(machine: Machine, built: Path) -> None:
    steps = blocks()
    assert [heading[:2] for heading in steps] == ["1.", "2.", "3.", "4.", "5.", "6.", "Cl", "Wi"]
    program_, certificates, broker, aggregator, agent, works, clients, directory = steps.values()
    lines = program_[0].splitlines()
    assert sum(map(is_of_packages, lines)) == 3
    machine.do("\n".join(line for line in lines if not is_of_packages(line)))
    machine.do(certificates[0].replace(" broker broker.example", " broker localhost"))
    machine.do(broker[0])
    machine.settle()
    configuration = machine.place / "mosquitto.conf"
    conf_d = machine.place / "etc/mosquitto/conf.d"
    configuration.write_text(f"user root\ninclude_dir {conf_d}\n")
    log = machine.place / "mosquitto.log"
    running = Running([program("mosquitto"), "-c", configuration], log)
    try:
        running.wait_until(lambda: "running" in log.read_text(), 10)
        output = machine.do(aggregator[0])
        assert "aggregator.toml: ok (aggregator)" in output
        machine.environment |= {
            "VIGIL_EMULATOR_DIR": str(built / "emulator"),
            "VIGIL_DRIVER_ROOT": str(built / "driver"),
            "VIGIL_TRUST_DRIVER": "true",
            "VIGIL_KERNEL_LOG_ENABLED": "false",  # a container may have none
            "PATH": f"{machine.environment['PATH']}:{built / 'driver/bin'}",
        }
        before, scan, after = agent[0].partition("vigil scan")
        machine.do(before)
        machine.settle()
        output = machine.do(scan + after)
        assert WELL.search(output)
        assert "ok       broker-topics" in output
    finally:
        running.stop()
    machine.do(works[0])
    stored = "/root/rehearsal/store/kube-system/mindx-dl-deviceinfo-rehearsal.json"
    wait = "until grep -q {} {}; do sleep 0.1; done"
    rehearsal = works[1].replace("sleep 5", wait.format("UpdateTime", f"-s {stored}"))
    output = machine.do(rehearsal.replace("sleep 1\n", wait.format("80E01801", stored) + "\n"))
    assert WELL.search(output)
    output = machine.do(clients[0].replace(" grpc broker.example", " grpc localhost"))
    assert "aggregator.toml: ok (aggregator)" in output
    before, scan, after = directory[0].partition("vigil scan")
    machine.do(before)
    machine.settle()
    assert "ok       directory" in machine.do(scan + after)
    asked = machine.asked.read_text()
    for unit in ("mosquitto", "npu-vigil-agent", "npu-vigil-aggregator"):
        assert re.search(rf"^systemctl enable .*{unit}$", asked, re.MULTILINE), unit
    assert (machine.place / "etc/npu-vigil/pki/agent.key").stat().st_mode & 0o77 == 0
