"""``pip install .`` into an environment of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_NOT_PACKAGED = shutil.ignore_patterns(".*", "tests", "build", "dist", "*.egg-info", "__pycache__")


def install(directory: Path) -> Path:
    """Install the tree as a wheel; the ``vigil`` command.

    What the project needs is taken from the environment that runs the tests; pip checks that it is
    all there. Its own packages can come from nowhere but the wheel.
    """
    source, environment = directory / "source", directory / "environment"
    shutil.copytree(_ROOT, source, ignore=_NOT_PACKAGED)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    paths = {"base": str(environment), "platbase": str(environment)}
    site = Path(sysconfig.get_path("purelib", "venv", paths))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--python", environment / "bin" / "python"),
            *("install", "--quiet", "--disable-pip-version-check"),
            *("--no-index", "--no-build-isolation", "."),
        ],
        cwd=source,
        check=True,
    )
    shutil.rmtree(source)
    return environment / "bin" / "vigil"
