"""Builds the emulated driver and lays it out as the vendor does."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from contract.errors import ConfigurationError, EmulatorError, Problem
from dcmi_shim.emulator.control import CONTROL_LIBRARY, Emulator, check_profile
from dcmi_shim.emulator.functions import SOURCES, functions

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

LIBRARY = Path("lib64/driver/libdcmi.so")
HCCN_TOOL = Path("tools/hccn_tool")
IPMITOOL = Path("bin/ipmitool")
IPMI_PRELOAD = LIBRARY.with_name("libvigil_ipmi_preload.so")
SWITCH_LIBRARY = LIBRARY.with_name("liblingqu-dcmi.so")
_WITH_SWITCHES = ("a3",)
_SHARED = (
    "state.c",
    "profile.c",
    "faults.c",
    "links.c",
    "switch_faults.c",
    "bmc.c",
    "code_words.c",
)
_FRAME = ("call.c", "subscription.c")
_DRIVER = (
    *_SHARED,
    *_FRAME,
    "identity.c",
    "health.c",
    "events.c",
    "telemetry.c",
    "device_info.c",
    "device_control.c",
    "v2.c",
)
_SWITCHES = (*_SHARED, *_FRAME, "lingqu.c")
_CONTROL = (*_SHARED, "control.c", "control_bmc.c", "switch_control.c", "troubles.c")
_HCCN_TOOL = (*_SHARED, "tool.c", "hccn_tool.c", "hccn_answers.c", "hccn_tables.c")
_IPMITOOL = (*_SHARED, "tool.c", "ipmitool.c")
_IPMI_PRELOAD = (*_SHARED, "ipmi_preload.c")
_FLAGS = ("-std=gnu11", "-O2", "-pthread", "-Wall", "-Wextra")
_LIBRARY_FLAGS = (
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-Wl,-z,nodelete",
    "-Wl,-z,defs",
)


def install(
    driver_root: Path, emulator_dir: Path, profile: str = "a2", without: Collection[str] = ()
) -> None:
    """Build the driver into ``driver_root``, its state into ``emulator_dir``, and start it.

    A server with on-board switches gets their library, too. Libraries and tools find their state by
    ``$VIGIL_EMULATOR_DIR``, else by the path that is written beside them here. ``without`` names
    functions that this driver shall not have, as real ones lack some.
    Raises ``ConfigurationError`` for an unknown profile or function, and ``EmulatorError`` when it
    cannot be built or written.
    """
    check_profile(profile)
    unknown = [name for name in without if name not in functions()]
    if unknown:
        problems = [
            Problem("without", f"{name!r} is no function of the driver") for name in unknown
        ]
        raise ConfigurationError("emulator install", problems)
    library = driver_root.absolute() / LIBRARY
    state = emulator_dir.absolute()
    try:
        _make_directories(library.parent)
        exported = [name for name in functions() if name not in without]
        chips = [name for name in exported if not functions()[name].is_of_switches]
        _build(library, _DRIVER, chips, ("-Wl,-soname,libdcmi.so",))
        switches = library.with_name(SWITCH_LIBRARY.name)
        if profile in _WITH_SWITCHES:
            own = [name for name in exported if functions()[name].is_of_switches]
            _build(switches, _SWITCHES, own, (f"-Wl,-soname,{switches.name}",))
        else:
            switches.unlink(missing_ok=True)
        preloaded = driver_root.absolute() / IPMI_PRELOAD
        _build(preloaded, _IPMI_PRELOAD, ("open*", "close", "ioctl"), ())
        _build_control(state)
        _write(library.parent / "emulator-dir", f"{state}\n")
        build_tool(driver_root.absolute() / HCCN_TOOL, _HCCN_TOOL, state)
        build_tool(driver_root.absolute() / IPMITOOL, _IPMITOOL, state)
    except OSError as error:
        raise EmulatorError(
            f"the emulator cannot be installed: {error}; choose directories that you may write to"
        ) from error
    emulator = Emulator(state)
    try:
        emulator.start(profile)
    finally:
        emulator.close()


def build_tool(target: Path, sources: Sequence[str], state: Path) -> None:
    """Build a command line tool that uses the hardware in ``state``. ``OSError`` if it cannot."""
    _make_directories(target.parent)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=target.parent) as scratch:
        built = Path(scratch) / target.name
        _compile([*_FLAGS, "-o", str(built), *(str(SOURCES / source) for source in sources)])
        built.chmod(0o755)
        built.replace(target)
    _write(target.parent / "emulator-dir", f"{state}\n")


def ensure_control(emulator_dir: Path) -> None:
    """Make ``emulator_dir`` one that can be driven, where none was made by ``install``.

    Raises ``EmulatorError`` when it cannot be built or written.
    """
    state = emulator_dir.absolute()
    if (state / CONTROL_LIBRARY).exists():
        return
    try:
        _build_control(state)
    except OSError as error:
        raise EmulatorError(f"no emulator can be made in {state}: {error}") from error


def _build_control(state: Path) -> None:
    _make_directories(state)
    _build(state / CONTROL_LIBRARY, _CONTROL, ("vigil_emulator_*",), ())


def _make_directories(path: Path) -> None:
    """Like ``mkdir -p`` with mode 0755 whatever the umask: a driver must not be group-writable."""
    missing = [directory for directory in (path, *path.parents) if not directory.exists()]
    for directory in reversed(missing):
        directory.mkdir(exist_ok=True)
        directory.chmod(0o755)


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text)
    temporary.chmod(0o644)
    temporary.replace(path)


def _build(
    target: Path, sources: Sequence[str], exported: Sequence[str], extra: Sequence[str]
) -> None:
    """Compile beside ``target`` and rename, so that running programs keep the old library."""
    with tempfile.TemporaryDirectory(prefix=".build-", dir=target.parent) as scratch:
        symbols = Path(scratch) / "symbols.map"
        symbols.write_text(
            f"{{ global: {' '.join(f'{name};' for name in exported)} local: *; }};\n"
        )
        built = Path(scratch) / target.name
        _compile(
            [
                *_FLAGS,
                *_LIBRARY_FLAGS,
                *extra,
                f"-Wl,--version-script={symbols}",
                "-o",
                str(built),
                *(str(SOURCES / source) for source in sources),
                "-ldl",
            ]
        )
        built.chmod(0o644)
        built.replace(target)


def _compile(arguments: Sequence[str]) -> None:
    compiler = shlex.split(os.environ.get("CC", "")) or ["gcc"]
    if shutil.which(compiler[0]) is None:
        raise EmulatorError(
            f"the emulator needs the C compiler {compiler[0]!r}, which is not on PATH; "
            "install gcc (for example: apt-get install gcc libc6-dev) or set CC"
        )
    result = subprocess.run([*compiler, *arguments], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        command = shlex.join([*compiler, *arguments])
        raise EmulatorError(f"the emulator does not compile: {command}\n{result.stderr.strip()}")
