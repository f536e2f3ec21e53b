"""A stranger's C program with its own types runs the start-up orders of ``dcmi#10``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contract.errors import ConfigurationError, EmulatorError
from dcmi_shim.emulator.functions import functions
from dcmi_shim.emulator.install import LIBRARY, install
from tests.dcmi_shim.emulator.driver import Driver

if TYPE_CHECKING:
    from tests.dcmi_shim.emulator.conftest import Server

SYMBOLS = (Path(__file__).parent / "symbols.txt").read_text().split("\n\n")


def _names(part: int) -> list[str]:
    return [line for line in SYMBOLS[part].splitlines() if not line.startswith("#")]


RESOLVED, FURTHER, V2 = _names(1), _names(2), _names(3)


def _exported(library: Path) -> set[str]:
    """Return every symbol that a program can find in the library."""
    command = ["nm", "-D", "--defined-only", str(library)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in listing.splitlines()}


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["a2", "a3"])
def test_start_up_orders(
    profile: str, programs: dict[str, Path], request: pytest.FixtureRequest
) -> None:
    server: Server = request.getfixturevalue(profile)
    result = subprocess.run(
        [programs["stranger"], server.library, profile, *RESOLVED],
        env={**os.environ, "VIGIL_EMULATOR_CONCURRENT": "abort"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout == "0 failures\n"
    assert result.returncode == 0
    assert result.stderr == ""
    assert server.emulator.status()["concurrent_calls"] == 0


def test_exactly_the_functions_of_the_spec_are_exported(a2: Server) -> None:
    assert len(RESOLVED) == 65
    assert len(V2) == 42
    assert _exported(a2.library) == {*RESOLVED, *FURTHER, *V2}
    own = {name for name, function in functions().items() if not function.is_of_switches}
    assert own == {*RESOLVED, *FURTHER, *V2}


def test_shared_object_is_marked_like_the_vendors(a2: Server) -> None:
    # It translates its headings.
    environment = {**os.environ, "LC_ALL": "C"}
    command = ["readelf", "--dynamic", str(a2.library)]
    listing = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert "[libdcmi.so]" in listing
    assert re.search(r"FLAGS_1.*NODELETE", listing)
    assert a2.library.stat().st_mode & 0o777 == 0o644
    assert a2.library.parent.stat().st_mode & 0o777 == 0o755
    assert a2.library.parent.parent.stat().st_mode & 0o777 == 0o755


def test_every_function_of_v2_is_unsupported(server: Server) -> None:
    for name in V2:
        assert getattr(server.driver.library, name)() == -8255


def test_every_function_but_the_list_is_not_ready_before_init(a2: Server) -> None:
    program = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
print({name: getattr(library, name)(*[ctypes.c_void_p(0)] * 8) for name in sys.argv[2:]})
"""
    names = [name for name in [*RESOLVED, *FURTHER, *V2] if name != "dcmi_init"]
    result = subprocess.run(
        [sys.executable, "-c", program, a2.library, *names],
        capture_output=True,
        text=True,
        check=True,
    )
    expected = dict.fromkeys(names, -8012) | dict.fromkeys(V2, -8255)
    assert _answers(result.stdout) == expected | {"dcmi_get_card_list": -8005}


def _answers(text: str) -> dict[str, int]:
    return {name: int(code) for name, code in re.findall(r"'(\w+)': (-?\d+)", text)}


@pytest.mark.slow
def test_a_driver_without_some_functions(tmp_path: Path) -> None:
    missing = {"dcmi_get_device_chip_info_v2", "dcmi_get_device_multi_utilization_rate_period"}
    install(tmp_path, tmp_path / "state", without=missing)
    assert _exported(tmp_path / LIBRARY) == {*RESOLVED, *FURTHER, *V2} - missing
    assert Driver(tmp_path / LIBRARY).init() == 0


def test_a_missing_function_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        install(tmp_path, tmp_path / "state", without=["dcmi_get_weather", "init"])
    assert len(caught.value.problems) == 2
    with pytest.raises(ConfigurationError, match="'a9' is unknown"):
        install(tmp_path, tmp_path / "state", profile="a9")
    assert list(tmp_path.iterdir()) == []


def test_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -O0")
    with pytest.raises(EmulatorError, match=r"no-such-compiler.*install gcc"):
        install(tmp_path, tmp_path / "state")


def test_the_chosen_compiler_is_used_and_its_complaint_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "gcc --no-such-option")
    with pytest.raises(EmulatorError, match="no-such-option"):
        install(tmp_path, tmp_path / "state")
    assert not (tmp_path / LIBRARY).exists()


def test_directories_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EmulatorError, match="cannot be installed"):
        install(tmp_path / "file" / "driver", tmp_path / "state")


@pytest.mark.slow
def test_installing_again_keeps_running_programs_alive(tmp_path: Path) -> None:
    install(tmp_path, tmp_path / "state")
    driver = Driver(tmp_path / LIBRARY)
    assert driver.init() == 0
    install(tmp_path, tmp_path / "state", profile="a3")
    assert driver.health(7, 1) == 0
