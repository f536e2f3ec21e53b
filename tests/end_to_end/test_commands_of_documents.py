"""Single commands of the documents run, on a node with a fault and its aggregator."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sqlite3
import subprocess
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.documented_commands import blocks_of_commands, runs
from tests.end_to_end.node import SEPARATES
from tests.parts.deadlines import patience
from tests.parts.tree import ROOT
from tests.parts.verbs import vigil_process

if TYPE_CHECKING:
    from pathlib import Path

    from tests.end_to_end.isolation_site import Site

_DOCKER = '#!/bin/sh\nprintf "%s\\n" "$@" > asked\n'
_ASK_A_DAEMON = ("explain", "faults", "jobs", "status", "timeline")
_EXAMPLES = "docs/examples"


def _replaced(word: str, values: dict[str, str]) -> str:
    """Return a word with the reader's own names replaced by those of this test."""
    for name, value in values.items():
        word = re.sub(name, value, word)
    return word


def _prepare(folder: Path, site: Site) -> dict[str, str]:
    """Make the files that documents name; return what replaces the reader's own names."""
    for name in ("docs", "systemd"):
        (folder / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "daemonset", folder / "daemonset")
    shutil.copy(ROOT / _EXAMPLES / "cluster.json", folder)
    for name in ("manifests", "new"):
        (folder / name).mkdir()
    for name in ("job.yaml", "manifests/job.yaml"):
        shutil.copy(ROOT / _EXAMPLES / "job-with-findings.yaml", folder / name)
    for name in ("faultCustomization.json", "new/faultCustomization.json"):
        (folder / name).write_text("{}")
    with (
        closing(sqlite3.connect(site.node.state_dir / "journal.sqlite")) as journal,
        closing(sqlite3.connect(folder / "copy.sqlite")) as copy,
    ):
        journal.backup(copy)  # a copy of the file lacks what its log has
    store = site.node.place.options[1]
    (folder / "agent.toml").write_text(f'node_name = "node-1"\nstore = "{store}"\n')
    docker = folder / "docker"
    docker.write_text(_DOCKER)
    docker.chmod(0o755)
    return {
        r"/root/|/tmp/|\$HOME/|/etc/npu-vigil/": f"{folder}/",
        r"^NODE/CHIP$": "node-1/3",
        r"^NODE$|node-17|worker-17|\$\(hostname\)": "node-1",
        r"^(CHIP|ID)$": "3",
        r"^CODE$": SEPARATES,
        r"^FILE$": "agent.toml",
        r"http://AGGREGATOR:9821|^127\.0\.0\.1:9820": site.aggregator.url,
        r"^/var/lib/npu-vigil$": str(site.node.state_dir),
        r"^directory:/srv/.*|^URL$": store,
        r"^NODE…$": "node-of-the-past",
        r"node-7": "node-2",
    }


def _as_here(words: list[str], site: Site) -> list[str]:
    """Return a command with what it lacks on this machine, which is a node and no terminal."""
    verb = words[1]
    if verb in ("isolate", "release"):
        return [*words, "--yes"]
    if verb in _ASK_A_DAEMON and "--server" not in words:
        return [*words, "--server", site.aggregator.url]
    if verb == "prove" and "--state-dir" not in words:
        return [*words, "--state-dir", str(site.node.state_dir)]
    return words


@pytest.mark.daemon
def test_every_single_command_runs(
    folder_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = folder_site
    site.node.emulator.occur(3, SEPARATES)
    site.node.wait(lambda: bool(site.aggregator.ask("/api/v1/faults")[1]["faults"]), "it is seen")
    folder = tmp_path / "reader"
    folder.mkdir()
    monkeypatch.chdir(folder)
    values = _prepare(folder, site)
    environment = {
        "VIGIL_STATE_DIR": str(site.node.state_dir),
        "VIGIL_STORE": site.node.place.options[1],
        "VIGIL_EMULATOR_DIR": site.node.environment["VIGIL_EMULATOR_DIR"],
        "VIGIL_DRIVER_ROOT": str(site.node.driver_root),
        "VIGIL_NODE_NAME": "node-1",
        "VIGIL_TRUST_DRIVER": "true",
    }
    commands = dict.fromkeys(
        command
        for block in blocks_of_commands()
        if block.test is None
        for command in block.commands()
        if runs(command)
    )
    certificate = str(folder / "npu-vigil-grpc" / "authority.crt")
    tools = f"{folder}:{site.node.driver_root / 'tools'}:{os.environ['PATH']}"
    failed: list[tuple[str, int, str]] = []
    for command in commands:
        replaced = values | ({"^FILE$": certificate} if command[0] == "openssl" else {})
        words = [_replaced(word, replaced) for word in command]
        if words[0] == "vigil":
            done = vigil_process(*_as_here(words, site)[1:], **environment)
        else:
            done = subprocess.run(
                words,
                env=os.environ | environment | {"PATH": tools},
                capture_output=True,
                text=True,
                check=False,
                timeout=patience(60),
            )
        # vigil ends with 1 where something is wrong on the node, as this fault is. An exception
        # that nothing catches also ends with 1.
        permitted = (0, 1) if words[0] == "vigil" else (0,)
        if done.returncode not in permitted or "Traceback" in done.stderr:
            failed.append((shlex.join(words), done.returncode, done.stderr or done.stdout))
    assert failed == []
