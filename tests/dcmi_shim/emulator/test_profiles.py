"""What servers of each family answer, read without the shim (``docs/spec/dcmi.md#2.3``, 3, 11)."""

from __future__ import annotations

import ctypes
import subprocess
from ctypes import byref, c_int, c_uint, c_ulonglong
from typing import TYPE_CHECKING

import pytest

from contract.errors import ConfigurationError
from dcmi_shim.emulator.control import Emulator
from dcmi_shim.emulator.install import HCCN_TOOL, LIBRARY, install
from tests.dcmi_shim.emulator.driver import Driver, Hbm

if TYPE_CHECKING:
    from pathlib import Path

    from tests.dcmi_shim.emulator.conftest import Server


class Memory(ctypes.Structure):
    """``dcmi_get_memory_info_stru``."""

    _fields_ = (
        ("size", c_ulonglong),
        ("available", c_ulonglong),
        ("mhz", c_uint),
        ("huge", c_ulonglong * 3),
        ("percent", c_uint),
        ("reserve", ctypes.c_ubyte * 60),
    )


class OldMemory(ctypes.Structure):
    """``dcmi_memory_info_stru``."""

    _fields_ = (("size", c_ulonglong), ("mhz", c_uint), ("percent", c_uint))


def server(tmp_path: Path, profile: str) -> ctypes.CDLL:
    """Install a new server; return its initialised library."""
    install(tmp_path / "driver", tmp_path / "emulator", profile)
    library = Driver(tmp_path / "driver" / LIBRARY).library
    assert library.dcmiv2_init() == 0 if profile == "a5" else library.dcmi_init() == 0
    return library


def cores(library: ctypes.CDLL) -> int:
    """Return the number of AI cores of the first chip."""
    info = ctypes.create_string_buffer(132)
    assert library.dcmi_get_device_chip_info_v2(0, 0, info) == 0
    return int.from_bytes(info.raw[96:100], "little")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("profile", "hbm", "memory", "ai_cores", "by_card"),
    [
        ("910a", 32768, 15171, 32, False),
        ("310p", None, 21527, 8, True),
        ("duo", None, 44280, 8, True),
        ("310", None, 8192, 2, False),
    ],
)
def test_sizes_and_power(
    tmp_path: Path, profile: str, hbm: int | None, memory: int, ai_cores: int, by_card: bool
) -> None:
    library = server(tmp_path, profile)
    found, of_hbm, old, power = Memory(), Hbm(), OldMemory(), c_int(-1)
    assert (ctypes.sizeof(found), ctypes.sizeof(of_hbm), ctypes.sizeof(old)) == (112, 32, 16)
    assert library.dcmi_get_device_memory_info_v3(0, 0, byref(found)) == 0
    assert (found.size, 0 < found.available < memory) == (memory, True)
    assert library.dcmi_get_memory_info(0, 0, byref(old)) == 0
    assert (old.size, old.percent) == (memory, found.percent)
    answer = library.dcmi_get_device_hbm_info(0, 0, byref(of_hbm))
    assert (answer, of_hbm.size) == ((0, hbm) if hbm is not None else (-8255, 0))
    assert cores(library) == ai_cores
    assert library.dcmi_mcu_get_power_info(0, byref(power)) == (0 if by_card else -8255)
    assert library.dcmi_get_device_power_info(0, 0, byref(power)) == (-8255 if by_card else 0)
    assert power.value > 0


@pytest.mark.slow
def test_a_duo_is_cards_of_two_dies(tmp_path: Path) -> None:
    library = server(tmp_path, "duo")
    dies, logic, name = c_int(), c_int(), ctypes.create_string_buffer(65)
    for card in range(4):
        assert library.dcmi_get_device_num_in_card(card, byref(dies)) == 0
        assert dies.value == 2
        for die in range(2):
            assert library.dcmi_get_device_logic_id(byref(logic), card, die) == 0
            assert logic.value == 2 * card + die
    assert library.dcmi_get_product_type(3, 1, name, 65) == 0
    assert name.value == b"Atlas 300I Duo"
    assert library.dcmi_get_device_num_in_card(4, byref(dies)) == -8001


@pytest.mark.slow
def test_an_a5_answers_by_the_second_interface_alone(tmp_path: Path) -> None:
    install(tmp_path / "driver", tmp_path / "emulator", "a5")
    library = Driver(tmp_path / "driver" / LIBRARY).library
    count, chips, number = c_int(), (c_int * 64)(), c_uint()
    assert library.dcmi_init() == -8255
    assert library.dcmiv2_get_mainboard_id(0, byref(number)) == -8012, "not initialised"
    assert library.dcmiv2_init() == 0
    assert library.dcmi_get_card_list(byref(count), chips, 64) == -8255
    assert library.dcmi_get_device_health(0, 0, None) == -8255
    assert library.dcmiv2_get_device_list(chips, byref(count), 64) == 0
    assert (count.value, chips[:8]) == (8, list(range(8)))
    assert library.dcmiv2_get_all_device_count(byref(count)) == 0
    assert count.value == 8
    assert library.dcmiv2_get_chip_phy_id_by_dev_id(3, byref(number)) == 0
    assert number.value == 3
    assert library.dcmiv2_get_mainboard_id(3, byref(number)) == 0
    assert number.value == 0x23
    hbm = Hbm()
    assert library.dcmiv2_get_device_hbm_info(7, byref(hbm)) == 0
    assert hbm.size == 131072
    die = (c_uint * 5)()
    assert library.dcmiv2_get_device_die_id(7, 2, die) == 0
    assert any(die)
    assert library.dcmiv2_get_device_health(8, byref(number)) == -8007
    assert library.dcmiv2_get_device_health(7, None) == -8001
    assert library.dcmiv2_get_urma_device_cnt() == -8255


@pytest.mark.slow
def test_ports_of_an_a5_follow_its_faults(tmp_path: Path) -> None:
    install(tmp_path / "driver", tmp_path / "emulator", "a5")
    emulator = Emulator(tmp_path / "emulator")

    def ports(chip: int) -> list[tuple[str, str]]:
        command = [str(tmp_path / "driver" / HCCN_TOOL), "-g", "-dev_info", "-i", str(chip)]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        rows = [line.split("|")[1:-1] for line in printed.splitlines() if line[0] == "|"]
        return [(row[3].strip(), row[4].strip()) for row in rows[1:]]

    try:
        assert ports(2) == [("ETH", "UP"), ("ETH", "UP"), ("UB", "UP")]
        emulator.link(2, up=False)
        emulator.occur(2, "81B18603")
        assert ports(2) == [("ETH", "DOWN"), ("ETH", "UP"), ("UB", "DOWN")]
        chip = emulator.status()["chips"][2]  # type: ignore[index]
        assert {one["code"] for one in chip["active"]} == {"81078607", "81B18603"}
        emulator.link(2, up=False, ports=2)
        assert ports(2) == [("ETH", "DOWN"), ("ETH", "DOWN"), ("UB", "DOWN")]
        emulator.link(2, up=False)
        assert ports(2)[:2] == [("ETH", "DOWN"), ("ETH", "UP")]
        emulator.link(2, up=True)
        emulator.recover(2, "81B18603")
        assert ports(2) == [("ETH", "UP"), ("ETH", "UP"), ("UB", "UP")]
    finally:
        emulator.close()


def test_a_second_driver_does_not_take_the_state_of_the_first(a2: Server, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is the state of the driver in "):
        install(tmp_path / "two", a2.emulator_dir, "a3")
    assert not (tmp_path / "two").exists()
    assert a2.emulator.status()["profile"] == "a2"
