"""The family of a chip."""

from __future__ import annotations

import pytest

from contract.codes.families import FAMILIES, chip_family


@pytest.mark.parametrize(
    ("name", "board", "family"),
    [
        ("Ascend910", 0xB0, "Ascend910A3"),
        ("910B3", 0xD3, "Ascend910A3"),
        ("910B3", 0x32, "Ascend910B"),
        ("910B4-1", None, "Ascend910B"),
        ("A2G1", None, "Ascend910B"),
        ("910B", 0x01, "Ascend910"),
        ("910A", None, "Ascend910"),
        ("310P3", None, "Ascend310P"),
        ("310P", None, "Ascend310P"),
        ("I2", None, "Ascend310P"),
        ("310B1", None, "Ascend310B"),
        ("Ascend310", None, "Ascend310"),
        ("Ascend950PR", 0x68, "Ascend910A5"),
        ("Ascend910", 0x32, None),
        ("", None, None),
        ("x910B3", None, None),
    ],
)
def test_chip_family(name: str, board: int | None, family: str | None) -> None:
    assert chip_family(name, board) == family
    assert family is None or family in FAMILIES
