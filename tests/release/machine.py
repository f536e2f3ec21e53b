"""A machine without a network: a file system below an overlay, in namespaces of its own."""

from __future__ import annotations

import shlex
import subprocess
from typing import TYPE_CHECKING

from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_NAMESPACES = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child")
_MACHINE = """
set -e
mount -t tmpfs -o size={size_mib}m tmpfs {folder}
mkdir {folder}/upper {folder}/work {folder}/root
cd {folder}
mount -t overlay overlay -o lowerdir={lower},upperdir=upper,workdir=work root
cd root
mount --rbind /dev dev
mount -t proc proc proc
mkdir given
mount --bind {given} given
"""


def run_on_machine(
    folder: Path,
    lower: Path,
    given: Path,
    script: str,
    size_mib: int = 2000,
    namespaces: Sequence[str] = _NAMESPACES,
    seconds: float = 300,
) -> str:
    """Run ``script`` in the root of a new machine, but not yet below it; return its output.

    The machine has the files of ``lower``, and those of ``given`` in ``/given``. What is written
    may have ``size_mib`` and is gone afterwards. ``folder`` is an empty folder. Processes of the
    machine end with the script, which may take ``seconds`` on a quick machine. ``namespaces`` is
    the command that runs another one in namespaces of its own.
    """
    paths = {
        name: shlex.quote(str(path))
        for name, path in (("folder", folder), ("lower", lower), ("given", given))
    }
    command = _MACHINE.format(**paths, size_mib=size_mib)
    done = subprocess.run(
        [*namespaces, "sh", "-c", f"{command}{script}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(seconds),
    )
    assert done.stderr == "", f"{done.stdout}\n{done.stderr}"
    return done.stdout
