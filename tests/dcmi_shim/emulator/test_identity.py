"""Bad ids, bad sizes and NULL (``docs/spec/dcmi.md#1.5``)."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_uint
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.dcmi_shim.emulator.conftest import Server

BY_DEVICE = """
dcmi_get_device_type dcmi_get_device_chip_info dcmi_get_device_chip_info_v2
dcmi_get_device_board_info dcmi_get_mainboard_id dcmi_get_device_pcie_info_v2
dcmi_get_device_health dcmi_get_device_network_health dcmi_get_device_temperature
dcmi_get_device_voltage dcmi_get_device_power_info dcmi_get_device_hbm_info
dcmi_get_device_multi_utilization_rate dcmi_get_device_boot_status
dcmi_get_device_outband_channel_state
"""


def _call(server: Server, name: str, *arguments: object) -> int:
    return int(getattr(server.driver.library, name)(*arguments))


def test_unknown_cards_and_devices(server: Server) -> None:
    out = ctypes.create_string_buffer(4096)
    dies = 2 if server.emulator.status()["profile"] == "a3" else 1
    for name in BY_DEVICE.split():
        assert _call(server, name, 7, dies - 1, out) in (0, -8255), name
        before = out.raw
        for card in (-1, 8, 2**31 - 1, -(2**31)):
            assert _call(server, name, card, 0, out) == -8001, name
        for device in (-1, dies, 255):
            assert _call(server, name, 0, device, out) == -8007, name
        assert _call(server, name, 0, 0, None) == -8001, name
        assert out.raw == before, name


def test_unknown_card_in_card_calls(server: Server) -> None:
    out = ctypes.create_string_buffer(2048)
    for card in (-1, 8):
        assert _call(server, "dcmi_get_device_num_in_card", card, out) == -8001
        assert _call(server, "dcmi_get_card_elabel_v2", card, out) == -8001
    assert _call(server, "dcmi_get_device_num_in_card", 0, None) == -8001


def test_unknown_logic_and_physical_ids(server: Server) -> None:
    chips = 16 if server.emulator.status()["profile"] == "a3" else 8
    card, device, number = c_int(), c_int(), c_uint()
    for unknown in (chips, 255, 2**32 - 1):
        for kind in ("logicid", "phyid"):
            name = f"dcmi_get_card_id_device_id_from_{kind}"
            assert _call(server, name, byref(card), byref(device), c_uint(unknown)) == -8007
        for name in ("dcmi_get_device_phyid_from_logicid", "dcmi_get_device_logicid_from_phyid"):
            assert _call(server, name, c_uint(unknown), byref(number)) == -8007
    assert _call(server, "dcmi_get_device_logic_id", byref(card), 0, 9) == -8007


@pytest.mark.parametrize("name", ["dcmi_get_card_list", "dcmi_get_card_num_list"])
def test_card_list_of_every_length(server: Server, name: str) -> None:
    count = c_int(-7)
    cards = (c_int * 64)(*[-1] * 64)
    for short in (-1, 0, 7):
        assert _call(server, name, byref(count), cards, short) == -8001
    assert count.value == -7
    assert list(cards) == [-1] * 64
    assert _call(server, name, byref(count), cards, 9) == 0
    assert list(cards) == [*range(8), 0, *[-1] * 55]
    assert _call(server, name, None, cards, 64) == -8001
    assert _call(server, name, byref(count), None, 64) == -8001


def test_indices_after_the_chips(server: Server) -> None:
    last, mcu, cpu = c_int(), c_int(), c_int()
    outs = (byref(last), byref(mcu), byref(cpu))
    dies = 2 if server.emulator.status()["profile"] == "a3" else 1
    assert _call(server, "dcmi_get_device_id_in_card", 3, *outs) == 0
    assert (last.value, mcu.value, cpu.value) == (dies, dies, -1)


def test_texts_need_room(server: Server) -> None:
    text = ctypes.create_string_buffer(b"\xaa" * 64, 64)
    assert _call(server, "dcmi_get_product_type", 0, 0, text, 31) == -8001
    assert _call(server, "dcmi_get_dcmi_version", text, 3) == -8001
    assert text.raw == b"\xaa" * 64
    assert _call(server, "dcmi_get_product_type", 0, 0, text, 32) == 0
    assert text.raw[31] == 0
    assert text.raw[32:] == b"\xaa" * 32


def test_values_that_a_function_does_not_know(server: Server) -> None:
    number = c_uint(7)
    for name in ("dcmi_get_device_frequency", "dcmi_get_device_utilization_rate"):
        assert _call(server, name, 0, 0, 1, byref(number)) == -8255
        assert _call(server, name, 0, 0, 99, byref(number)) == -8001
    out = ctypes.create_string_buffer(64)
    assert _call(server, "dcmi_get_device_ecc_info", 0, 0, 0, out) == -8255
    assert _call(server, "dcmi_get_device_ecc_info", 0, 0, 4, out) == -8001
    assert _call(server, "dcmi_get_device_die_v2", 0, 0, 2, out) == -8255
    assert _call(server, "dcmi_get_device_die_v2", 0, 0, 3, out) == -8001
    assert _call(server, "dcmi_set_device_reset", 0, 0, 2) == -8001
    size = c_uint(64)
    assert _call(server, "dcmi_get_device_info", 0, 0, 12, 9, out, byref(size)) == -8255
    assert _call(server, "dcmi_get_device_info", 0, 0, 2**31, 9, out, byref(size)) == -8255
    assert number.value == 7
    assert out.raw == bytes(64)


def test_settings_of_a_super_pod(a3: Server) -> None:
    status, policy = c_uint(9), c_int(9)
    sdid = 3 << 18 | 1 << 16 | 7
    assert _call(a3, "dcmi_get_spod_node_status", 0, 0, sdid, byref(status)) == 0
    assert status.value == 0
    assert _call(a3, "dcmi_set_spod_node_status", 0, 0, sdid, 1) == 0
    assert _call(a3, "dcmi_get_spod_node_status", 3, 1, sdid, byref(status)) == 0
    assert status.value == 1
    assert _call(a3, "dcmi_set_spod_node_status", 0, 0, 5 << 22, 1) == -8001
    assert _call(a3, "dcmi_set_multi_die_policy", 1) == 0
    assert _call(a3, "dcmi_get_multi_die_policy", byref(policy)) == 0
    assert policy.value == 1
    assert _call(a3, "dcmi_set_multi_die_policy", 2) == -8001


def test_a_card_without_a_super_pod_has_no_such_settings(a2: Server) -> None:
    status = c_uint()
    assert _call(a2, "dcmi_get_spod_node_status", 0, 0, 0, byref(status)) == -8255
    assert _call(a2, "dcmi_get_multi_die_policy", byref(status)) == -8255


def test_an_in_band_reset_takes_the_ring_or_the_card_along(server: Server) -> None:
    def stages() -> list[int]:
        found = []
        dies = 2 if server.emulator.status()["profile"] == "a3" else 1
        for card in range(8):
            for device in range(dies):
                status = c_int(-1)
                assert (
                    _call(server, "dcmi_get_device_boot_status", card, device, byref(status)) == 0
                )
                found.append(status.value)
        return found

    assert _call(server, "dcmi_set_device_reset", 1, 0, 1) == 0
    if server.emulator.status()["profile"] == "a2":
        assert stages() == [0] * 8
    else:
        assert stages() == [16, 16, 0, 0, *[16] * 12]


def test_another_card_has_other_dies_and_another_serial_number(server: Server) -> None:
    dies = 2 if server.emulator.status()["profile"] == "a3" else 1

    def names(card: int) -> tuple[bytes, ...]:
        label, die = ctypes.create_string_buffer(1280), ctypes.create_string_buffer(20)
        assert _call(server, "dcmi_get_card_elabel_v2", card, label) == 0
        found = [label.raw[1024:]]
        for device in range(dies):
            assert _call(server, "dcmi_get_device_die_v2", card, device, 1, die) == 0
            found.append(die.raw)
        return tuple(found)

    before, other = names(2), names(3)
    server.emulator.occur(2 * dies, "80E01801")
    server.emulator.replace(2 * dies)
    assert not set(before) & set(names(2))
    assert names(3) == other
    codes, count = (c_uint * 128)(), c_int()
    assert _call(server, "dcmi_get_device_errorcode_v2", 2, 0, byref(count), codes, 128) == 0
    assert count.value == 0
