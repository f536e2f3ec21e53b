"""Device types as in ``docs/spec/noded.md#4.1``."""

from __future__ import annotations

import pytest

from contract.codes.bmc_device_types import DEVICE_TYPES, UNKNOWN, device_type, parse_device_type


def test_the_table() -> None:
    assert len(DEVICE_TYPES) == 97
    assert device_type(0x00) == "CPU"
    assert device_type(0x17) == "HMM/CMC"
    assert device_type(0x2D) == "M.2 Transfer Card"
    assert device_type(0x5D) == "ExpBoard"
    assert device_type(0xC4) == "CLU"


@pytest.mark.parametrize("subject_type", [0x07, 0x0C, 0x5E, 0xBF, 0xC5, 0xFF])
def test_everything_else_is_unknown(subject_type: int) -> None:
    assert device_type(subject_type) == UNKNOWN


def test_every_name_is_parsed_back() -> None:
    for subject_type, name in DEVICE_TYPES.items():
        assert parse_device_type(name) == subject_type
        assert parse_device_type(f" {name.upper()} ") == subject_type
        assert parse_device_type(f"0x{subject_type:02X}") == subject_type


@pytest.mark.parametrize("text", ["", "fann", "4", "0x", "0x100", "0xZZ", "UNKNOWN", "-1"])
def test_text_that_is_no_device_type_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a valid device type of a BMC"):
        parse_device_type(text)
