"""The server's serial number: what counts as one (``docs/spec/noded.md#4.2``, N1, D-16)."""

from __future__ import annotations

import pytest

from dcmi_shim.ipmi.serial_number import serial_number_exchange

SERIAL = "30 90 05 00 03 04 00 ff"
MANUFACTURER = "30 90 05 00 03 00 00 ff"
HUAWEI = "00 48 75 61 77 65 69"


def asked(*replies: str) -> tuple[str | None, list[str]]:
    """Return the serial number in these replies (without completion code), and the requests."""
    asking = serial_number_exchange()
    requests = [str(next(asking))]
    for reply in replies:
        try:
            requests.append(str(asking.send(bytes.fromhex(reply))))
        except StopIteration as done:
            return done.value, requests
    raise AssertionError(f"it goes on asking: {requests}")


def test_the_worked_example() -> None:
    reply = "00 32 31 30 32 33 31 33 4C 4E 52 31 30 50 35 30 30 30 30 31 32"
    assert asked(reply) == ("2102313LNR10P5000012", [SERIAL])


@pytest.mark.parametrize("short", ["", "00", "01"])
def test_the_manufacturer_stands_in_for_none(short: str) -> None:
    assert asked(short, HUAWEI) == ("Huawei", [SERIAL, MANUFACTURER])
    assert asked(short, "00") == (None, [SERIAL, MANUFACTURER])


@pytest.mark.parametrize(
    ("reply", "number"),
    [
        ("00 20 20 32 31 30 32 33 41 42 43 20 20 00 00 00", "21023ABC"),
        ("00 00 00 00 00", None),
        ("00 20", None),
        ("00 FF FF FF FF", None),
        ("00 41 0A 1B 42 C3 A9 7F", "ABé"),
        ("00 41 C3 42 FF", "AB"),
        ("00 41 20 42", "A B"),
    ],
)
def test_only_what_can_be_printed_counts(reply: str, number: str | None) -> None:
    assert asked(reply) == (number, [SERIAL])
