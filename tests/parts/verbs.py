"""Runs a verb as it is called: in this process, without the start of Python, or as its own."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
import unicodedata
from contextlib import redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING
from unittest.mock import patch

from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from pathlib import Path


def columns_of(line: str) -> int:
    """Return how many columns of a terminal ``line`` takes."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in line)


def run_verb(*arguments: str, text: str = "", **environment: str) -> tuple[int, bytes, str]:
    """Return exit status, standard output and standard error of ``vigil ARGUMENTS``.

    ``text`` is its standard input.

    Nothing of the caller's environment that means something to verbs is left, and no kubeconfig.
    """
    from vigil.language import choose
    from vigil.main import main

    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("VIGIL_", "LC_", "LANG", "KUBE", "COLUMNS"))
    }
    clean |= {"LC_ALL": "C.UTF-8", "HOME": "/nonexistent"} | environment
    output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    errors = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    status: object = None
    disabled = logging.root.manager.disable
    with (
        patch.dict(os.environ, clean, clear=True),
        patch.object(sys, "argv", ["vigil", *arguments]),
        patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()))),
        redirect_stdout(output),
        redirect_stderr(errors),
    ):
        try:
            main()
        except SystemExit as end:
            status = end.code
        finally:
            # Some verbs disable the log until their process ends, and its language is chosen once.
            logging.disable(disabled)
            choose((), {})
    assert isinstance(status, int)
    return status, output.buffer.getvalue(), errors.buffer.getvalue().decode()


def run_vigil(*arguments: str, **environment: str) -> tuple[int, list[str], str]:
    """Return exit status, lines of output, and standard error of ``vigil ARGUMENTS``."""
    status, output, errors = run_verb(*arguments, **environment)
    return status, output.decode().splitlines(), errors


def vigil_process(*arguments: object, **environment: object) -> subprocess.CompletedProcess[str]:
    """Run ``vigil ARGUMENTS`` as a process of its own; return its result.

    Nothing of the caller's environment that means something to verbs is left but
    ``environment``.
    """
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("VIGIL_", "KUBE"))
    }
    return subprocess.run(
        [sys.executable, "-m", "vigil", *map(str, arguments)],
        env=clean | {name: str(value) for name, value in environment.items()},
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=False,
    )


def changed_agent(code: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run Python code that changes the agent and calls ``main`` as ``vigil agent``.

    Its driver, store and state are below ``directory``. Return its result.
    """
    options = ["--driver-root", str(directory), "--trust-driver", "--node-name", "n1"]
    options += ["--store", f"directory:{directory}", "--state-dir", str(directory / "state")]
    return subprocess.run(
        [sys.executable, "-c", code, "agent", *options, "--listen", "127.0.0.1:0"],
        check=False,
        capture_output=True,
        text=True,
        timeout=patience(20),
    )
