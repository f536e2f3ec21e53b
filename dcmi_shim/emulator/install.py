"""Builds the emulated driver and installs it in the vendor's layout."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from contract.errors import ConfigurationError, EmulatorError, Problem
from dcmi_shim.emulator.control import CONTROL_LIBRARY, Emulator, check_profile
from dcmi_shim.emulator.functions import SOURCES, functions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

# Times in a damaged state file may lie anywhere; their differences wrap.
_COMPILE = (
    "-fwrapv",
    "-std=gnu11",
    "-O2",
    "-fPIC",
    "-fvisibility=hidden",
    "-pthread",
    "-Wall",
    "-Wextra",
)
# ``nodelete``: MindCluster closes the library and opens it again in one process (dcmi#1.3).
_LINK_LIBRARY = ("-shared", "-pthread", "-Wl,-z,nodelete", "-Wl,-z,defs")
_LINK_PROGRAM = ("-pthread",)
LIBRARY = Path("lib64/driver/libdcmi.so")
HCCN_TOOL = Path("tools/hccn_tool")
IPMITOOL = Path("bin/ipmitool")
IPMI_PRELOAD = LIBRARY.with_name("libvigil_ipmi_preload.so")
SWITCH_LIBRARY = LIBRARY.with_name("liblingqu-dcmi.so")
_WITH_SWITCHES = ("a3",)
_OWNER = "driver-root"
"""File in the directory of the state: the driver root that owns it."""
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
_CONTROL_NAMES = ("vigil_emulator_*",)


class CompiledSources:
    """Compiled sources in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def link_library(
        self, target: Path, sources: Sequence[str], exported: Iterable[str], *flags: str
    ) -> None:
        """Link a library of ``sources`` that exports the names ``exported``, which may be patterns.

        Raises ``EmulatorError``, and ``OSError`` where it cannot be written.
        """
        symbols = self._directory / f"{target.name}.map"
        names = " ".join(f"{name};" for name in exported)
        symbols.write_text(f"{{ global: {names} local: *; }};\n", "ascii")
        script = f"-Wl,--version-script={symbols}"
        self._link(target, sources, 0o644, (*_LINK_LIBRARY, *flags, script))

    def link_program(self, target: Path, sources: Sequence[str]) -> None:
        """Link a program of ``sources``. Raises as ``link_library``."""
        self._link(target, sources, 0o755, _LINK_PROGRAM)

    def _link(self, target: Path, sources: Sequence[str], mode: int, flags: Sequence[str]) -> None:
        """Link beside ``target`` and rename, so that running programs keep the old one."""
        with tempfile.TemporaryDirectory(prefix=".build-", dir=target.parent) as scratch:
            built = Path(scratch) / target.name
            objects = [str(self._directory / Path(source).with_suffix(".o")) for source in sources]
            _run([*flags, "-o", str(built), *objects, "-ldl"], self._directory)
            built.chmod(mode)
            built.replace(target)


@contextlib.contextmanager
def compiled(*parts: Sequence[str]) -> Iterator[CompiledSources]:
    """Yield the sources of all ``parts``, compiled, until the end of the context.

    Raises ``EmulatorError`` without a compiler and when they do not compile.
    """
    with tempfile.TemporaryDirectory(prefix="vigil-emulator-") as scratch:
        directory = Path(scratch)
        sources = [*dict.fromkeys(str(SOURCES / source) for part in parts for source in part)]
        workers = min(os.cpu_count() or 1, len(sources))
        with ThreadPoolExecutor(workers) as compilers:
            shares = [[*_COMPILE, "-c", *sources[first::workers]] for first in range(workers)]
            list(compilers.map(lambda share: _run(share, directory), shares))
        yield CompiledSources(directory)


def _run(arguments: Sequence[str], directory: Path) -> None:
    compiler = shlex.split(os.environ.get("CC", "")) or ["gcc"]
    if shutil.which(compiler[0]) is None:
        raise EmulatorError(
            f"the emulator needs the C compiler {compiler[0]!r}, which is not on PATH; "
            "install gcc (for example: apt-get install gcc libc6-dev) or set CC"
        )
    command = [*compiler, *arguments]
    result = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, errors="replace", check=False
    )
    if result.returncode != 0:
        raise EmulatorError(
            f"the emulator does not compile: {shlex.join(command)}\n{result.stderr.strip()}"
        )


@dataclass(frozen=True)
class EmulatedServer:
    """A server to install: the place of its driver, the place of its state, and its profile."""

    driver_root: Path
    emulator_dir: Path
    profile: str = "a2"


def install(
    driver_root: Path, emulator_dir: Path, profile: str = "a2", without: Collection[str] = ()
) -> None:
    """Build the driver into ``driver_root``, its state into ``emulator_dir``, and start it.

    A server with on-board switches gets their library, too. Libraries and tools find their state by
    ``$VIGIL_EMULATOR_DIR``, else by the path that is written beside them here. ``without`` names
    functions that this driver lacks, as real ones lack some. Raises ``ConfigurationError`` for an
    unknown profile or function, and ``EmulatorError`` when it cannot be built or written.
    """
    install_servers([EmulatedServer(driver_root, emulator_dir, profile)], without)


def install_servers(servers: Sequence[EmulatedServer], without: Collection[str] = ()) -> None:
    """Install several servers as ``install`` does; everything is compiled once."""
    for server in servers:
        check_profile(server.profile)
    unknown = [name for name in without if name not in functions()]
    if unknown:
        problems = [
            Problem("without", f"{name!r} is not a function of the driver") for name in unknown
        ]
        raise ConfigurationError("emulator install", problems)
    exported = [name for name in functions() if name not in without]
    for server in servers:
        _check_owner(server)
    try:
        with compiled(
            _DRIVER, _SWITCHES, _CONTROL, _HCCN_TOOL, _IPMITOOL, _IPMI_PRELOAD
        ) as objects:
            for server in servers:
                _install_server(objects, server, exported)
    except OSError as error:
        raise EmulatorError(
            f"the emulator cannot be installed: {error}; choose directories that you may write to"
        ) from error
    for server in servers:
        emulator = Emulator(server.emulator_dir.absolute())
        try:
            emulator.start(server.profile)
        finally:
            emulator.close()


def _check_owner(server: EmulatedServer) -> None:
    """Refuse a state that belongs to another driver: both would be the same hardware."""
    root, owner = server.driver_root.absolute(), server.emulator_dir.absolute() / _OWNER
    try:
        other = Path(owner.read_text(encoding="utf-8").strip())
    except OSError:
        return
    if other != root and (other / LIBRARY).exists():
        text = (
            f"{owner.parent} is the state of the driver in {other}; give this one a state of its "
            "own with --emulator-dir, or unset VIGIL_EMULATOR_DIR"
        )
        raise ConfigurationError("emulator install", [Problem("--emulator-dir", text)])


def _install_server(
    objects: CompiledSources, server: EmulatedServer, exported: Sequence[str]
) -> None:
    root, state = server.driver_root.absolute(), server.emulator_dir.absolute()
    _install_libraries(objects, root, exported, server.profile in _WITH_SWITCHES)
    for tool, sources in ((HCCN_TOOL, _HCCN_TOOL), (IPMITOOL, _IPMITOOL)):
        _make_directories((root / tool).parent)
        objects.link_program(root / tool, sources)
    _make_directories(state)
    objects.link_library(state / CONTROL_LIBRARY, _CONTROL, _CONTROL_NAMES)
    _write(state / _OWNER, f"{root}\n")
    for place in (LIBRARY, HCCN_TOOL, IPMITOOL):
        _write((root / place).parent / "emulator-dir", f"{state}\n")


def _install_libraries(
    objects: CompiledSources, root: Path, exported: Sequence[str], has_switches: bool
) -> None:
    library, switches = root / LIBRARY, root / SWITCH_LIBRARY
    _make_directories(library.parent)
    of_switches = [name for name in exported if functions()[name].is_of_switches]
    of_chips = [name for name in exported if name not in of_switches]
    objects.link_library(library, _DRIVER, of_chips, f"-Wl,-soname,{library.name}")
    if has_switches:
        objects.link_library(switches, _SWITCHES, of_switches, f"-Wl,-soname,{switches.name}")
    else:
        # A library of an earlier profile would show switches that this server does not have.
        switches.unlink(missing_ok=True)
    objects.link_library(root / IPMI_PRELOAD, _IPMI_PRELOAD, ("open*", "close", "ioctl"))


def ensure_control(emulator_dir: Path) -> None:
    """Build the control library in ``emulator_dir`` unless ``install`` has built it.

    Raises ``EmulatorError`` when it cannot be built or written.
    """
    state = emulator_dir.absolute()
    if (state / CONTROL_LIBRARY).exists():
        return
    try:
        _make_directories(state)
        with compiled(_CONTROL) as objects:
            objects.link_library(state / CONTROL_LIBRARY, _CONTROL, _CONTROL_NAMES)
    except OSError as error:
        raise EmulatorError(f"no emulator can be made in {state}: {error}") from error


def _make_directories(path: Path) -> None:
    """Create directories like ``mkdir -p``, with mode 0755: a driver must not be group-writable."""
    missing = [directory for directory in (path, *path.parents) if not directory.exists()]
    for directory in reversed(missing):
        directory.mkdir(exist_ok=True)
        directory.chmod(0o755)


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text, encoding="utf-8")
    temporary.chmod(0o644)
    temporary.replace(path)
