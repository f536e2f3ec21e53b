"""Each ``kubectl`` of the documents has options that the real program knows."""

from __future__ import annotations

import subprocess

import pytest

from tests.documented_commands import blocks_of_commands


@pytest.mark.server
def test_kubectl_knows_every_option() -> None:
    commands = {
        command
        for block in blocks_of_commands()
        for command in block.commands()
        if command[0] == "kubectl"
    }
    assert len(commands) > 10
    for command in commands:
        # It parses the options before it shows their help.
        done = subprocess.run([*command, "--help"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stderr)
