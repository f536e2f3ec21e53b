"""A machine without a network: a file system below an overlay, in namespaces of its own."""

from __future__ import annotations

import shlex
import subprocess
from typing import TYPE_CHECKING

from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from pathlib import Path

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
    folder: Path, lower: Path, given: Path, script: str, size_mib: int = 2000
) -> str:
    """Run ``script`` in the root of a new machine, but not yet below it; return its output.

    The machine has the files of ``lower``, and those of ``given`` in ``/given``. What is written
    may have ``size_mib`` and is gone afterwards. ``folder`` is an empty folder. Processes of the
    machine end with the script.
    """
    paths = {
        name: shlex.quote(str(path))
        for name, path in (("folder", folder), ("lower", lower), ("given", given))
    }
    command = _MACHINE.format(**paths, size_mib=size_mib)
    done = subprocess.run(
        [
            *("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child"),
            *("sh", "-c", f"{command}{script}"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(300),
    )
    assert done.stderr == "", f"{done.stdout}\n{done.stderr}"
    return done.stdout
