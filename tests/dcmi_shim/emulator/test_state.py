"""The state file: killed controls, damage, another place, another user, a fork."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contract.errors import EmulatorError
from dcmi_shim.emulator.control import Emulator
from dcmi_shim.emulator.functions import functions
from dcmi_shim.emulator.install import LIBRARY, install
from tests.dcmi_shim.emulator.driver import Call, Driver, wait_until
from tests.parts.deadlines import let_time_pass, nothing_happens_for, patience

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.dcmi_shim.emulator.conftest import Server, Watchers

ROOT = Path(__file__).parents[3]
LOCK_BYTE = 1 << 40
HEADER = 32

HOLD = """
import fcntl, struct, sys, time
file = open(sys.argv[1], "r+b")
lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, int(sys.argv[2]), 1, 0)
fcntl.fcntl(file, fcntl.F_OFD_SETLKW, lock)
print("held", flush=True)
time.sleep(60)
"""

CHANGE_FOR_EVER = """
import sys
from pathlib import Path
from dcmi_shim.emulator.control import Emulator
emulator = Emulator(Path(sys.argv[1]))
print("changing", flush=True)
while True:
    emulator.occur(0, "80E18402")
    emulator.hang("get_device_voltage")
    emulator.recover(0, "80E18402")
"""


def _start(program: str, *arguments: object) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def _kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=patience(10))


@pytest.mark.slow
def test_a_control_killed_while_it_holds_the_state_blocks_no_other(a2: Server) -> None:
    holder = _start(HOLD, a2.emulator_dir / "state", LOCK_BYTE)
    try:
        call = Call(lambda: a2.driver.health(0))
        nothing_happens_for(0.1, because="a call answers within milliseconds")
        assert call.is_alive()
    finally:
        _kill(holder)
    call.join(patience(5))
    assert call.answer == 0


@pytest.mark.slow
def test_controls_killed_in_the_middle_of_changes(a2: Server, watchers: Watchers) -> None:
    watcher = watchers.start(a2)
    for _ in range(5):
        changer = _start(CHANGE_FOR_EVER, a2.emulator_dir)
        let_time_pass(0.05)
        _kill(changer)
        assert a2.driver.health(1) == 0
    a2.emulator.reset()
    a2.emulator.occur(7, "80E01801")
    wait_until(lambda: a2.driver.codes(7) == ["80E01801"])
    while watcher.event()["code"] != "80E01801":
        pass


DAMAGES: dict[str, Callable[[Path], object]] = {
    "short": lambda path: os.truncate(path, 100),
    "empty": lambda path: os.truncate(path, 0),
    "zeroes": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "noise": lambda path: path.write_bytes(bytes(range(256)) * (path.stat().st_size // 256 + 1)),
    "missing": lambda path: path.unlink(),
    "another version": lambda path: _write(path, 8, struct.pack("I", 99)),
    "unknown profile": lambda path: _write(path, 16, struct.pack("I", 7)),
}


def _write(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_state_is_an_internal_error_until_it_is_made_whole(
    a2: Server, damage: str
) -> None:
    a2.emulator.occur(0, "80E18402")
    DAMAGES[damage](a2.emulator_dir / "state")
    assert a2.driver.health(0) == -8005
    assert a2.driver.init() == -8005
    with pytest.raises(EmulatorError, match="vigil emulator start"):
        a2.emulator.occur(0, "80E18402")
    with pytest.raises(EmulatorError, match="no sound state"):
        a2.emulator.status()
    a2.emulator.start("a2")
    assert a2.driver.health(0) == 0
    assert a2.driver.codes(0) == []


@pytest.mark.slow
def test_a_subscriber_survives_damage(a2: Server, watchers: Watchers) -> None:
    watcher = watchers.start(a2)
    os.truncate(a2.emulator_dir / "state", 100)
    let_time_pass(0.7)
    a2.emulator.start("a2")
    a2.emulator.occur(2, "80E18402")
    assert watcher.event()["code"] == "80E18402"


STROLL = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
out = [ctypes.create_string_buffer(2048) for _ in range(3)]
assert library.dcmi_init() == 0
for card in range(8):
    for name in ("health", "boot_status", "hbm_info", "chip_info_v2"):
        getattr(library, f"dcmi_get_device_{name}")(card, 0, out[0])
    library.dcmi_get_device_errorcode_v2(card, 0, out[0], out[1], 128)
for _ in range(100):
    library.dcmi_get_fault_event(-1, -1, 0, (ctypes.c_ubyte * 48)(), out[0])
print("alive", flush=True)
"""


def test_noise_behind_a_sound_header_crashes_nothing(a2: Server, watchers: Watchers) -> None:
    """Answers are strange then, but they come, no process dies, and a start repairs it."""
    watcher = watchers.start(a2)
    path = a2.emulator_dir / "state"
    _write(path, HEADER, random.Random(1).randbytes(path.stat().st_size - HEADER))
    for name in functions():
        a2.emulator.clear(name)  # a noisy hook is a hang, which is right but no use here
    stroller = subprocess.run(
        [sys.executable, "-c", STROLL, a2.library], capture_output=True, text=True, check=False
    )
    assert stroller.stdout == "alive\n"
    assert watcher.process.poll() is None
    assert a2.emulator.status()["profile"] == "a2"
    path.unlink()
    a2.emulator.start("a2")
    assert a2.driver.health(0) == 0


@pytest.mark.slow
def test_the_environment_names_another_emulator(
    tmp_path: Path, a2: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, tmp_path / "elsewhere")
    emulator = Emulator(tmp_path / "elsewhere")
    emulator.drop(0)
    assert a2.driver.health(0) == 0
    monkeypatch.setenv("VIGIL_EMULATOR_DIR", str(tmp_path / "elsewhere"))
    assert a2.driver.init() == 0
    assert a2.driver.health(0) == -8012
    monkeypatch.delenv("VIGIL_EMULATOR_DIR")
    assert a2.driver.init() == 0
    assert a2.driver.health(0) == 0
    emulator.close()


@pytest.mark.slow
def test_a_library_that_does_not_know_its_emulator(tmp_path: Path) -> None:
    install(tmp_path, tmp_path / "state")
    library = tmp_path / LIBRARY
    beside = library.with_name("emulator-dir")
    assert beside.read_text() == f"{tmp_path / 'state'}\n"
    beside.unlink()
    assert Driver(library).init() == -8005


def test_a_forked_child_has_locks_of_its_own(a2: Server) -> None:
    child = os.fork()
    if child == 0:
        a2.emulator.occur(1, "80E18402")
        os._exit(0 if a2.driver.health(0) == 0 else 1)
    assert os.waitpid(child, 0)[1] == 0
    wait_until(lambda: a2.driver.codes(1) == ["80E18402"])


def test_locks_are_given_back(a2: Server) -> None:
    assert a2.driver.health(0) == 0
    with (a2.emulator_dir / "state").open("r+b") as file:
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, LOCK_BYTE, 1, 0)
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, lock)


def test_a_user_without_rights_is_denied(a2: Server) -> None:
    child = os.fork()
    if child == 0:
        if os.geteuid() == 0:
            os.setresuid(65534, 65534, 65534)
        else:
            (a2.emulator_dir / "state").chmod(0)
        os._exit(0 if a2.driver.init() == -8002 else 1)
    status = os.waitpid(child, 0)[1]
    (a2.emulator_dir / "state").chmod(0o644)
    assert status == 0


def test_no_emulator_in_the_directory(tmp_path: Path) -> None:
    with pytest.raises(EmulatorError, match="run vigil emulator install"):
        Emulator(tmp_path)


@pytest.mark.slow
def test_a_closed_emulator(tmp_path: Path) -> None:
    install(tmp_path, tmp_path / "state")
    emulator = Emulator(tmp_path / "state")
    emulator.close()
    emulator.close()
    with pytest.raises(EmulatorError, match="was closed"):
        emulator.reset()


@pytest.mark.slow
def test_signals_do_not_disturb_a_waiting_call(a2: Server) -> None:
    """A signal wakes the wait; the call goes on waiting."""
    program = """
import ctypes, signal, sys, time
signal.signal(signal.SIGUSR1, lambda *_: None)
library = ctypes.CDLL(sys.argv[1])
library.dcmi_init()
print("ready", flush=True)
begin = time.monotonic()
assert library.dcmi_get_device_voltage(0, 0, ctypes.create_string_buffer(4)) == 0
print(time.monotonic() - begin)
"""
    a2.emulator.slow("get_device_voltage", 400)
    process = _start(program, a2.library)
    for _ in range(5):
        let_time_pass(0.05)
        process.send_signal(signal.SIGUSR1)
    output, _ = process.communicate(timeout=patience(10))
    assert float(output) >= 0.4
