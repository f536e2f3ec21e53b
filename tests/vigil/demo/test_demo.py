"""The demo as a person runs it, and a demo that must fail."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from dataclasses import replace
from typing import TYPE_CHECKING

import psutil
import pytest
from typer.testing import CliRunner

from dcmi_shim.emulator.control import PROFILES
from stores.address import open_store
from stores.base import Document, Selection
from tests.parts.controlplane import LEASES
from tests.parts.deadlines import patience
from tests.parts.emulator_objects import objects_folder
from vigil.demo import actions
from vigil.demo.command import DemoOptions, play
from vigil.demo.steps import FULL_SCENARIO, SHORT_SCENARIO, DemoStep, steps_of_profile
from vigil.main import app

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

    from tests.parts.controlplane import ControlPlane

pytestmark = pytest.mark.daemon


# The speed divides the intervals of heartbeats and polls: a machine that is slow gets longer ones.
SPEED = str(max(1.0, 5 / patience(1.0)))
EVERYWHERE = {"kube-root-ca.crt", "extension-apiserver-authentication"}
FAULT = {"80E01801": "RestartBusiness"}


def _demo(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vigil", "demo", *options],
        capture_output=True,
        text=True,
        timeout=patience(110),
        check=False,
    )


def _demo_here(*options: str) -> Result:
    """Run the demo in this process, so that its daemons come from the template."""
    return CliRunner().invoke(app, ["demo", *options])


@pytest.mark.timeout(120)
def test_demo_reaches_every_expected_state() -> None:
    done = _demo_here("--json", "--full", "--speed", SPEED)
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["well"]
    assert [step["title"] for step in report["steps"]] == [step.title for step in FULL_SCENARIO]
    assert all(
        step["cluster_info_ms"] > 0
        for step, planned in zip(report["steps"], FULL_SCENARIO, strict=True)
        if not planned.unchanged
    )


@pytest.mark.timeout(120)
@pytest.mark.parametrize("profile", [one for one in PROFILES if one not in ("a2", "a3")])
def test_demo_of_each_family(profile: str) -> None:
    done = _demo_here("--json", "--speed", SPEED, "--nodes", "2", "--profile", profile)
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["well"]
    assert [step["title"] for step in report["steps"]] == [
        step.title for step in steps_of_profile(profile)
    ]


@pytest.mark.timeout(120)
def test_demo_runs_on_a_real_api_server_and_leaves_nothing(control_plane: ControlPlane) -> None:
    kubeconfig = str(control_plane.kubeconfig)
    done = _demo_here("--speed", SPEED, "--store", "kubernetes:", "--kubeconfig", kubeconfig)
    assert done.exit_code == 0, done.output
    assert (
        f"{len(SHORT_SCENARIO)} of {len(SHORT_SCENARIO)} expected states were reached"
        in done.stdout
    )
    for namespace in ("kube-system", "mindx-dl", "cluster-system"):
        path = f"/api/v1/namespaces/{namespace}/configmaps"
        left = control_plane.request("GET", path)["items"]
        assert {document["metadata"]["name"] for document in left} <= EVERYWHERE
    assert control_plane.request("GET", LEASES)["items"] == []


def test_the_help_states_the_length_of_both_scenarios() -> None:
    text = " ".join(_demo_here("--help").output.replace("│", "").split())
    assert f"Play all {len(FULL_SCENARIO)} states, not only {len(SHORT_SCENARIO)}" in text


async def test_demo_refuses_a_store_of_a_real_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It looks before it compiles the emulator.
    monkeypatch.setenv("CC", "no-such-compiler")
    url = f"directory:{tmp_path}"
    store = open_store(url)
    document = Document(
        "kube-system", "mindx-dl-deviceinfo-worker-1", {"a": "b"}, {"mx-consumer-cim": "true"}
    )
    await store.put(document)
    refused = await asyncio.to_thread(_demo, "--store", url)
    assert refused.returncode == 2, refused.stderr
    assert "mindx-dl-deviceinfo-worker-1" in refused.stderr
    assert len(await store.list(Selection())) == 1
    await store.close()


@pytest.mark.timeout(120)
async def test_demo_notices_a_lost_event(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lossy = replace(SHORT_SCENARIO[1], actions=(actions.lose_next(0), *SHORT_SCENARIO[1].actions))
    options = DemoOptions(
        directory=tmp_path, nodes=1, speed=4.0, json=True, keep=False, store=None, kubeconfig=None
    )
    assert not await play(options, (SHORT_SCENARIO[0], lossy))
    report = json.loads(capsys.readouterr().out)
    assert not report["well"]
    assert not report["steps"][0]["problems"]
    assert any("nodes: vigil-demo-1" in problem for problem in report["steps"][1]["problems"])


@pytest.mark.timeout(120)
async def test_demo_notices_what_goes_too_early(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = DemoStep(
        "a fault", "is shown", 0.0, (actions.occur(0, 3, "80E01801"),), {(0, 3): FAULT}
    )
    early = DemoStep(
        "it recovers",
        "at once",
        0.0,
        (actions.recover(0, 3, "80E01801"),),
        {(0, 3): {}},
        holds_seconds=2,
    )
    options = DemoOptions(
        directory=tmp_path, nodes=1, speed=4.0, json=True, keep=False, store=None, kubeconfig=None
    )
    assert not await play(options, (SHORT_SCENARIO[0], planned, early))
    steps = json.loads(capsys.readouterr().out)["steps"]
    assert [bool(step["problems"]) for step in steps] == [False, False, True]
    assert "after 0." in steps[2]["problems"][0]


@pytest.mark.timeout(120)
async def test_an_agent_that_starts_slowly_is_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each start is slower than this, as each is on a machine that does much other work.
    monkeypatch.setattr("vigil.demo.run._PATIENCE_SECONDS", 0.001)
    started_again = DemoStep(
        "a fault comes while no agent runs",
        "it is shown after the start",
        0.0,
        (actions.kill_agent(0), actions.occur(0, 3, "80E01801"), actions.start_agent(0)),
        {(0, 3): FAULT},
        starts_daemons=True,
    )
    options = DemoOptions(
        directory=tmp_path, nodes=1, speed=4.0, json=True, keep=False, store=None, kubeconfig=None
    )
    assert await play(options, (SHORT_SCENARIO[0], started_again)), capsys.readouterr().out


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_stopped_leaves_no_process(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, number: signal.Signals
) -> None:
    url = f"directory:{tmp_path / 'store'}"
    # To compile the emulator would take this process longer than all else.
    objects = shlex.quote(str(objects_folder(tmp_path_factory.getbasetemp())))
    compiler = tmp_path / "gcc"
    compiler.write_text(f"""#!/bin/sh
case " $* " in *" -c "*) ;; *) exec gcc "$@" ;; esac
for source; do
    name=${{source##*/}}
    case $name in *.c) cp {objects}/"${{name%.c}}.o" . || exit ;; esac
done
""")
    compiler.chmod(0o755)
    with subprocess.Popen(
        [sys.executable, "-m", "vigil", "demo", "--nodes", "1", "--store", url],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "CC": str(compiler)},
    ) as demo:
        try:
            assert demo.stdout is not None
            page = re.fullmatch(
                r"the cluster in a browser: (http://\S+/)\n", demo.stdout.readline()
            )
            assert page is not None
            asked = urllib.request.Request(page[1], headers={"Accept": "text/html"})
            with urllib.request.urlopen(asked, timeout=patience(10)) as answer:
                assert b"NPU Vigil" in answer.read()
            assert "the nodes start" in demo.stdout.readline()
            assert _processes_of(url)
            demo.send_signal(number)
            demo.communicate(timeout=patience(20))
        finally:
            # The end of the block waits for it, also where something above fails.
            demo.terminate()
    assert demo.returncode == 128 + number
    assert _processes_of(url) == []


def _processes_of(url: str) -> list[int]:
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if url in (process.info["cmdline"] or ()) and "demo" not in process.info["cmdline"]
    ]


def test_wrong_options_end_with_status_2() -> None:
    assert _demo("--nodes", "0").returncode == 2
    refused = _demo("--store", "nonsense:")
    assert refused.returncode == 2, refused.stderr
    assert "nonsense" in refused.stderr
