"""The serial number of the server, as its BMC reports it (``docs/spec/noded.md#4.2``). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dcmi_shim.ipmi.request import Request

if TYPE_CHECKING:
    from dcmi_shim.ipmi.request import Exchange

_SERIAL_NUMBER, _MANUFACTURER = 4, 0


def asking_for_serial_number() -> Exchange[str | None]:
    """Ask for it; the name of the manufacturer stands in for one that the BMC does not have.

    ``None``: there is neither, or nothing printable in what there is.
    """
    for field in (_SERIAL_NUMBER, _MANUFACTURER):
        reply = yield Request(0x30, 0x90, bytes((0x05, 0x00, 0x03, field, 0x00, 0xFF)))
        if len(reply) > 1:
            return printable(reply[1:]) or None
    return None


def printable(content: bytes) -> str:
    """The text in a field that may be padded with blanks and zero bytes, or never was written.

    It is UTF-8, as upstream takes it; what is none is left out.
    """
    text = content.decode("utf-8", "ignore")
    return "".join(letter for letter in text if letter.isprintable()).strip()
