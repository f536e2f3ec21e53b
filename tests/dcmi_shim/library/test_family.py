"""The rules of the chip family, and return codes."""

from __future__ import annotations

import pytest

from contract.codes.families import FAMILIES
from dcmi_shim.library.family import chip_family
from dcmi_shim.library.return_codes import MEANINGS, meaning


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
    assert family is None or family == "Ascend910A5" or family in FAMILIES


def test_every_return_code_has_a_meaning() -> None:
    assert len(MEANINGS) == 25
    assert meaning(-8012) == "not ready"
    assert "no such function" in meaning(-99998)
    assert meaning(-4711) == "unknown return code"
