"""Wrong libraries, wrong options, wrong configuration: a clear word and the right exit status."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.daemons import OF_THIS_TREE, wait
from tests.parts.daemons import environment_without
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.acceptance.conftest import MakeAgent
    from tests.acceptance.places import Folder

_SECONDS = 15


def run(vigil: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    """Run the command to its end; return its status and all its output."""
    done = subprocess.run(
        [vigil, *arguments],
        env=environment_without(*OF_THIS_TREE) | environment,
        cwd=vigil.parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=patience(_SECONDS),
        text=True,
    )
    assert "Traceback" not in done.stdout
    return done.returncode, " ".join(done.stdout.split())


def test_a_file_that_is_no_library(folder: Folder, make_agent: MakeAgent) -> None:
    agent = make_agent(folder)
    agent.hardware.library.write_text("this is no library\n")
    agent.start()
    assert agent.ended() == 3
    assert "is not an ELF library" in agent.logged()
    assert str(agent.hardware.library) in agent.logged()
    assert "Traceback" not in agent.logged()


@pytest.mark.parametrize(
    ("without", "output"),
    [("NO_INIT", "is not a DCMI library"), ("SECOND_GENERATION", "not supported yet")],
)
def test_wrong_libraries(
    folder: Folder,
    make_agent: MakeAgent,
    compiled: Callable[..., Path],
    without: str,
    output: str,
) -> None:
    agent = make_agent(folder, library=compiled(without))
    agent.start()
    assert agent.ended() == 3
    assert output in agent.logged()
    assert "Traceback" not in agent.logged()


def test_an_unknown_chip(folder: Folder, make_agent: MakeAgent) -> None:
    agent = make_agent(folder)
    agent.hardware.write("name", "Banana9000")
    agent.start()
    assert agent.ended() == 3
    assert "Banana9000" in agent.logged()
    assert "Traceback" not in agent.logged()


def test_a_library_that_crashes_at_once(folder: Folder, make_agent: MakeAgent) -> None:
    agent = make_agent(folder)
    agent.hardware.command("crash", "dcmi_init")
    agent.start()
    wait(lambda: "SIGSEGV" in agent.logged(), "it is reported")
    status, answer = agent.ask("/readyz")
    assert status == 503
    assert "SIGSEGV" in answer["reasons"][0]
    agent.hardware.forget("crash", "dcmi_init")
    agent.up(20)


def test_a_library_that_is_being_copied(
    folder: Folder, make_agent: MakeAgent, compiled: Callable[..., Path]
) -> None:
    agent = make_agent(folder)
    library = agent.hardware.library
    library.write_bytes(library.read_bytes()[:600])
    agent.start()
    wait(lambda: str(library) in agent.logged(), "it is reported")
    assert agent.ask("/readyz")[0] == 503
    # A new file: the half of the old one may still be mapped.
    library.unlink()
    shutil.copy(compiled(), library)
    agent.up(20)


def test_a_driver_that_is_not_trusted(vigil: Path, folder: Folder, make_agent: MakeAgent) -> None:
    agent = make_agent(folder)
    root = agent.hardware.root
    # Ours by its owner (not root) or by its place (others may write there).
    agent.hardware.library.parent.chmod(0o777)
    status, output = run(
        vigil,
        *("agent", "--node-name", "n", *folder.options),
        *("--driver-root", str(root), "--state-dir", str(root / "state")),
    )
    assert status == 3
    assert "may be written by others" in output or "belongs to user" in output
    assert str(agent.hardware.library) in output


@pytest.mark.parametrize("name", ["", "a_b"])
def test_node_names(vigil: Path, tmp_path: Path, name: str) -> None:
    options = ("--store", f"directory:{tmp_path}", "--state-dir", str(tmp_path / "state"))
    status, output = run(vigil, "agent", *options, VIGIL_NODE_NAME=name)
    assert status == 2
    assert "VIGIL_NODE_NAME" in output
    assert not (tmp_path / "state").exists()


_ERRORS = """
node_name = "NOT GOOD"
store = "ftp://somewhere"
listen = "nowhere"
unknown = 1

[chip_faults]
audit_period_seconds = -5
health_period_seconds = "often"

[driver]
call_deadline_seconds = 1e9
"""
_WRONG_KEYS = (
    "node_name",
    "store",
    "listen",
    "unknown",
    "chip_faults.audit_period_seconds",
    "chip_faults.health_period_seconds",
    "driver.call_deadline_seconds",
)


def test_all_errors_of_a_configuration(vigil: Path, tmp_path: Path) -> None:
    file = tmp_path / "vigil.toml"
    file.write_text(_ERRORS)
    for arguments in (("validate", str(file)), ("agent", "--config", str(file))):
        status, output = run(vigil, *arguments)
        assert status == 2, output
        assert [key for key in _WRONG_KEYS if key not in output] == []


def test_a_file_that_is_no_configuration(vigil: Path, tmp_path: Path) -> None:
    file = tmp_path / "vigil.toml"
    file.write_bytes(b"node_name = ")
    for arguments in (("validate", str(file)), ("agent", "--config", str(file))):
        status, output = run(vigil, *arguments)
        assert status == 2, output
        assert str(file) in output


def test_wrong_options_of_the_aggregator(vigil: Path, tmp_path: Path) -> None:
    status, output = run(
        vigil,
        *("aggregator", "--store", "gopher:", "--listen", "x", "--state-dir", str(tmp_path)),
    )
    assert status == 2
    assert "gopher:" in output
    assert "listen" in output


def test_an_address_in_use_stops_no_publication(
    folder: Folder, make_agent: MakeAgent, vigil: Path
) -> None:
    agent = make_agent(folder)
    agent.start()
    agent.up()
    agent.ask("/healthz")
    address = (agent.state_dir / "listen").read_text().strip().removeprefix("http://")
    log = agent.directory / "aggregator.log"
    arguments = ["aggregator", *folder.options, "--listen", address]
    with log.open("wb") as output:
        aggregator = subprocess.Popen(
            [vigil, *arguments, "--state-dir", str(agent.directory / "other")],
            env=environment_without(*OF_THIS_TREE),
            stdin=subprocess.DEVNULL,
            stderr=output,
        )
    try:
        published = folder.root / "mindx-dl" / "cluster-info-device-0.json"
        wait(published.exists, "cluster-info is published", _SECONDS)
        wait(lambda: f"--listen {address}" in log.read_text(), "it is logged")
    finally:
        aggregator.terminate()
        try:
            assert aggregator.wait(patience(_SECONDS)) == 0
        finally:
            aggregator.kill()


@pytest.mark.parametrize("verb", ["agent", "aggregator"])
def test_a_kubeconfig_that_is_none(vigil: Path, tmp_path: Path, verb: str) -> None:
    options = ["--kubeconfig", str(tmp_path / "none"), "--state-dir", str(tmp_path / "state")]
    if verb == "agent":
        options += ["--node-name", "n", "--driver-root", str(tmp_path)]
    status, output = run(vigil, verb, "--store", "kubernetes:", *options)
    assert status in (2, 3)
    assert str(tmp_path) in output
