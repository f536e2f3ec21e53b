"""Installs wheels into an environment of their own, without pip and without a network.

    PYTHON install_wheels.py WHEELS ENVIRONMENT FINAL

Only the standard library is there. ``ENVIRONMENT`` is a virtual environment of ``PYTHON``
afterwards, with the command ``vigil``, and works as soon as it is at ``FINAL``. ``PYTHON`` may lie
in it. Each file is compared with its wheel's RECORD.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import sys
import zipfile
from pathlib import Path

_DATA = {"data": "", "scripts": "bin/"}
"""Where the files of a wheel's ``.data`` folders belong, below the environment."""
_COMMAND = """#!{python}
import sys

from vigil.main import main

sys.exit(main())
"""


def install(wheels: Path, environment: Path, interpreter: Path, version: str) -> None:
    """Make ``environment`` of all files ``*.whl`` in ``wheels``.

    ``version`` is that of the interpreter, as in ``3.11``. Raises ``ValueError`` for a wheel that
    is not what its RECORD describes.
    """
    site = environment / "lib" / f"python{version}" / "site-packages"
    site.mkdir(parents=True)
    (environment / "bin").mkdir(exist_ok=True)
    (environment / "pyvenv.cfg").write_text(
        f"home = {interpreter.parent}\ninclude-system-site-packages = false\nversion = {version}\n"
    )
    for name in ("python", "python3", f"python{version}"):
        (environment / "bin" / name).symlink_to(interpreter)
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            _unpack(archive, site, environment)


def write_command(environment: Path, final: Path) -> None:
    """Write the command ``vigil``; ``final`` is where the environment will be."""
    command = environment / "bin" / "vigil"
    command.write_text(_COMMAND.format(python=final / "bin" / "python3"))
    command.chmod(0o755)


def _unpack(archive: zipfile.ZipFile, site: Path, environment: Path) -> None:
    (record,) = (name for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
    rows = list(csv.reader(io.StringIO(archive.read(record).decode())))
    # A file that RECORD lacks would be installed without a check.
    if {name for name, *_ in rows} != {name for name in archive.namelist() if name[-1] != "/"}:
        raise ValueError(f"{archive.filename}: RECORD does not list the files of the wheel")
    for name, expected, _ in rows:
        data = archive.read(name)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        if name != record and expected != f"sha256={digest}":
            raise ValueError(f"{archive.filename}: {name} is not what RECORD describes")
        target = _target(name, site, environment)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def _target(name: str, site: Path, environment: Path) -> Path:
    """Return where a file of a wheel belongs; never outside of ``environment``."""
    folder, _, rest = name.partition("/")
    target = site / name
    if folder.endswith(".data"):
        kind, _, inner = rest.partition("/")
        target = environment / _DATA[kind] / inner if kind in _DATA else site / inner
    # A name with ".." in it would lead outside.
    if environment.resolve() not in target.resolve().parents:
        raise ValueError(f"{name} lies outside of the environment")
    return target


if __name__ == "__main__":
    environment, final = Path(sys.argv[2]).resolve(), Path(sys.argv[3])
    # Without symbolic links: a later change of /usr/bin/python3 must not change the environment.
    own = Path(sys.executable).resolve()
    if environment in own.parents:
        own = final / own.relative_to(environment)
    install(
        Path(sys.argv[1]), environment, own, f"{sys.version_info.major}.{sys.version_info.minor}"
    )
    write_command(environment, final)
