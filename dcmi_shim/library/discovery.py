"""Where a vendor library is, and whether it may be loaded (``docs/spec/dcmi.md#1.1``).

Candidates in order: a driver root given by the operator, ``LD_LIBRARY_PATH``, the default driver
root, the cache of ``ldconfig``. The first one that passes all checks is used.
"""

from __future__ import annotations

import os
import platform
import stat
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import force_setattr

from contract.errors import DriverMissing, DriverNotFound
from contract.file_kinds import kind_of
from contract.record import Record
from dcmi_shim.library.vendor import DCMI

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dcmi_shim.library.vendor import VendorLibrary

DEFAULT_DRIVER_ROOT = Path("/usr/local/Ascend/driver")
IN_ROOT = Path("lib64/driver")
# Upstream's limits for the length of a path and its depth (dcmi#1.1).
_MAX_LENGTH = 1024
_LEVELS = 20
_LDCONFIG = "/sbin/ldconfig"
_LDCONFIG_SECONDS = 10
_FOREIGN_WRITE = stat.S_IWGRP | stat.S_IWOTH
_ELF_HEADER = 20
_MACHINES = {"x86_64": 62, "aarch64": 183, "riscv64": 243, "loongarch64": 258}


class VendorPaths(Record, frozen=True):
    """Where the vendor's libraries and tools are: as configured, not checked.

    ``driver_root`` is ``None`` unless the operator gave one (the vendor's default then comes after
    ``LD_LIBRARY_PATH``); a relative one counts from the working directory of this process.
    ``trust_driver``: files with other owners than root are used as well.
    """

    driver_root: Path | None
    trust_driver: bool
    environment: Mapping[str, str]

    def __post_init__(self) -> None:
        """Make the root absolute: children that load the library work in another directory."""
        if self.driver_root is not None:
            force_setattr(self, "driver_root", self.driver_root.absolute())


class FoundLibrary(Record, frozen=True):
    """A library to load.

    ``search`` are directories in which it may find the libraries that it needs.

    ``warnings`` are the ownership problems that are accepted because the operator trusts them.
    """

    path: Path
    search: tuple[Path, ...]
    warnings: tuple[str, ...]
    vendor: VendorLibrary = DCMI


def find_library(paths: VendorPaths, vendor: VendorLibrary = DCMI) -> FoundLibrary:
    """Find a library of ``vendor``.

    Raises ``DriverNotFound`` that names each candidate and why it was refused, or that no place has
    one (``DriverMissing``).
    """
    refused: list[str] = []
    error: type[DriverNotFound] = DriverMissing
    for origin, candidate in _candidates(vendor.file_name, paths, refused):
        error = DriverNotFound
        # A library that others may replace would run with the rights of the agent.
        problems = ownership_problems(candidate)
        if problems and not paths.trust_driver:
            refused.append(f"{candidate} ({origin}): {problems[0]}")
            continue
        unusable = _not_loadable(candidate)
        if unusable is not None:
            refused.append(f"{candidate} ({origin}): {unusable}")
            continue
        search = _search(candidate, paths.trust_driver)
        return FoundLibrary(candidate, search, tuple(problems), vendor)
    listing = "".join(f"\n  {reason}" for reason in refused)
    raise error(
        f"no usable {vendor.file_name}; install the driver, or name its directory with "
        f"--driver-root{listing}"
    )


def _candidates(name: str, paths: VendorPaths, refused: list[str]) -> Iterator[tuple[str, Path]]:
    if paths.driver_root is not None:
        yield from _present("--driver-root", paths.driver_root / IN_ROOT / name, refused)
    search = paths.environment.get("LD_LIBRARY_PATH", "")
    if len(search) > _MAX_LENGTH:
        refused.append(
            f"LD_LIBRARY_PATH: has {len(search)} characters, at most {_MAX_LENGTH} count"
        )
    else:
        for directory in filter(None, search.split(":")):
            yield from _present("LD_LIBRARY_PATH", Path(directory).absolute() / name, refused)
    if paths.driver_root is None:
        yield from _present("default driver root", DEFAULT_DRIVER_ROOT / IN_ROOT / name, refused)
    yield from _cached(name, refused)


def _present(origin: str, path: Path, refused: list[str]) -> Iterator[tuple[str, Path]]:
    if len(str(path)) > _MAX_LENGTH:
        refused.append(
            f"{origin}: a path of {len(str(path))} characters, at most {_MAX_LENGTH} count"
        )
    # A dangling link exists, as upstream's ``lstat`` sees it, and is refused with its reason.
    elif not os.path.lexists(path):
        refused.append(f"{path} ({origin}): does not exist")
    else:
        yield origin, path


def _cached(name: str, refused: list[str]) -> Iterator[tuple[str, Path]]:
    try:
        cache = subprocess.run(
            [_LDCONFIG, "--print-cache"],
            capture_output=True,
            check=True,
            stdin=subprocess.DEVNULL,
            timeout=_LDCONFIG_SECONDS,
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.SubprocessError) as error:
        refused.append(f"{_LDCONFIG}: {error}")
        return
    for line in cache.splitlines():
        entry, arrow, path = line.partition("=>")
        if arrow and entry.split()[:1] == [name]:
            yield from _present("ldconfig", Path(path.strip()), refused)
            return
    refused.append(f"{_LDCONFIG}: lists no {name}")


def ownership_problems(path: Path) -> list[str]:
    """Return what is wrong with the owner or mode of ``path``, its link and its parent
    directories.
    """
    problems: list[str] = []
    try:
        if path.is_symlink() and path.lstat().st_uid != 0:
            problems.append("is a link that does not belong to root")
        real = path.resolve(strict=True)
        # Whoever may write to a parent directory may replace the file.
        for level, part in enumerate((real, *real.parents)):
            if level >= _LEVELS:
                problems.append(f"lies more than {_LEVELS} directories deep")
                break
            status = part.stat()
            if status.st_uid != 0:
                problems.append(f"{part} belongs to user {status.st_uid}, not to root")
            if status.st_mode & _FOREIGN_WRITE:
                mode = stat.S_IMODE(status.st_mode)
                problems.append(f"{part} may be written by others (mode {mode:04o})")
    except (OSError, RuntimeError) as error:
        problems.append(str(error))
    return problems


def _not_loadable(path: Path) -> str | None:
    """Return why ``path`` is not a library for this machine, or ``None``."""
    try:
        status = path.stat()
        if stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode):
            return f"is {kind_of(status)}, not a library"  # a pipe would be waited for
        with path.open("rb") as file:
            header = file.read(_ELF_HEADER)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if len(header) < _ELF_HEADER or header[:4] != b"\x7fELF":
        return "is not an ELF library"
    # ``EI_DATA``, then ``e_machine`` at byte 18, and ``EI_CLASS`` 2 for 64 bits (elf(5)).
    order = "little" if header[5] == 1 else "big"
    machine = int.from_bytes(header[18:20], order)  # type: ignore[arg-type]
    expected = _MACHINES.get(platform.machine())
    if header[4] != 2 or (expected is not None and machine != expected):
        names = {number: name for name, number in _MACHINES.items()}
        bits = 64 if header[4] == 2 else 32
        built = names.get(machine, f"ELF machine {machine}")
        return f"is built for {built} ({bits} bit), this machine is {platform.machine()}"
    return None


def _search(library: Path, trust_driver: bool) -> tuple[Path, ...]:
    """Return the driver's own directories, as the vendor's environment script lists them."""
    own = library.resolve().parent
    if own.name != IN_ROOT.name:
        return ()
    return tuple(
        directory
        for directory in (own, own.parent / "common", own.parent)
        if directory.is_dir() and (trust_driver or not ownership_problems(directory))
    )
