"""The programs of ``docs/extending.md``, as they stand there, in real daemons."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.aggregator.daemon import Daemon
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from tests.end_to_end.node import Node

ROOT = Path(__file__).parents[2]
GAUGE = "npu_vigil_water_inlet_celsius"
TOO_HOT = "80E20207"
_WITHIN_SECONDS = 20.0


def programs() -> list[str]:
    """Return the programs of the text, in its order."""
    text = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    found: list[str] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    return found


def test_the_collector_gives_a_metric_and_a_fault(folder_node: Node, tmp_path: Path) -> None:
    collector, line, _ = programs()
    assert collector.count("\n") <= 150, "adding a source is one small file"
    assert line.count("\n") == 1, "and one line in the registry"
    library = tmp_path / "library"
    shutil.copytree(ROOT / "collectors", library / "collectors")
    (library / "collectors" / "water.py").write_text(collector)
    registry = library / "collectors" / "registry.py"
    registry.write_text(
        registry.read_text()
        .replace("from collectors.bmc import", f"{line}from collectors.bmc import", 1)
        .replace("    HostClockCollector,\n)", "    HostClockCollector,\n    WaterCollector,\n)")
    )
    water = tmp_path / "water.json"
    water.write_text(json.dumps({"3": 47.5, "5": 30}))
    node = folder_node
    node.give_bmc(tmp_path)
    node.environment |= {
        "PYTHONPATH": str(library),
        "VIGIL_WATER_ENABLED": "true",
        "VIGIL_WATER_FILE": str(water),
        "VIGIL_WATER_PERIOD_SECONDS": "0.2",
    }
    # Without -P the folder in which tests run would come first.
    node.start((sys.executable, "-P", "-m", "vigil"))
    node.until(lambda now: TOO_HOT in now.codes(3), "the fault is in device-info")
    document = node.shown()
    assert document is not None
    assert document.codes(5) == set()
    metrics = node.ask("/metrics")[1]
    assert f'{GAUGE}{{chip="3"}} 47.5' in metrics
    assert f'{GAUGE}{{chip="5"}} 30.0' in metrics
    water.write_text("{")
    node.wait(lambda: "water" in blind(node), "the source is blind")
    document = node.shown()
    assert document is not None
    assert TOO_HOT in document.codes(3), "no answer is no recovery"
    water.write_text(json.dumps({"3": 40}))
    node.until(lambda now: now.codes(3) == set(), "the fault is over")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "name", "more"),
    [
        (0, "collectors/water.py", "made: type[Collector[WaterSection]] = WaterCollector\n"),
        (2, "aggregator/maintenance.py", "made: Plugin = Maintenance()\n"),
    ],
    ids=["collector", "plugin"],
)
def test_the_programs_pass_make_lint(number: int, name: str, more: str, tmp_path: Path) -> None:
    program = programs()[number]
    done = run("ruff", "check", "--stdin-filename", name, "-", given=program)
    assert done.returncode == 0, done.stdout
    done = run("ruff", "format", "--diff", "--stdin-filename", name, "-", given=program)
    assert done.returncode == 0, done.stdout
    typed = tmp_path / "typed.py"
    imports = "from aggregator.plugin import Plugin\nfrom collectors.base import Collector\n"
    typed.write_text(f"{program}\n{imports}\n{more}")
    done = run("mypy", str(typed))
    assert done.returncode == 0, done.stdout


def run(*command: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run a module of Python at the root of the repository."""
    return subprocess.run(
        [sys.executable, "-m", *command],
        input=given,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=False,
    )


def blind(node: Node) -> set[str]:
    """Return the sources that give no answer about the node."""
    return {one["source"] for one in node.status()["blind"]}


@pytest.mark.slow
def test_the_plugin_shows_what_it_reads(tmp_path: Path) -> None:
    plugin = programs()[2]
    (tmp_path / "maintenance.py").write_text(plugin)
    (tmp_path / "with_plugin.py").write_text(
        "from functools import partial\n"
        "from aggregator import process\n"
        "from maintenance import Maintenance\n"
        "from vigil.main import main\n"
        "process.run = partial(process.run, plugins=[Maintenance()])\n"
        "main()\n"
    )
    store = tmp_path / "store"
    store.mkdir()
    daemon = Daemon(tmp_path / "aggregator", "--store", f"directory:{store}")
    daemon.program = "with_plugin"
    daemon.environment["PYTHONPATH"] = f"{tmp_path}:{ROOT}"
    shown = store / "mindx-dl" / "maintenance.json"
    try:
        daemon.start()
        for node in ("node-7", "node-2"):
            write(store, node, {"example.com/maintenance": "true"})
        write(store, "node-9", {})
        daemon.process.wait_until(
            lambda: shown.exists() and "node-7" in shown.read_text(), _WITHIN_SECONDS
        )
        daemon.process.wait_until(
            lambda: json.loads(shown.read_text())["data"] == {"nodes": "node-2,node-7"},
            _WITHIN_SECONDS,
        )
    finally:
        daemon.stop()


def write(store: Path, name: str, labels: dict[str, str]) -> None:
    """Write a ConfigMap of the plant as another program would."""
    content = {"labels": labels, "data": {}}
    (store / "plant").mkdir(exist_ok=True)
    (store / "plant" / f"{name}.tmp").write_text(json.dumps(content))
    (store / "plant" / f"{name}.tmp").rename(store / "plant" / f"{name}.json")
