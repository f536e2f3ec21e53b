"""The serial number of the server, as its BMC reports it (``docs/spec/noded.md#4.2``). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dcmi_shim.ipmi.request import Request

if TYPE_CHECKING:
    from dcmi_shim.ipmi.request import Exchange

_SERIAL_NUMBER, _MANUFACTURER = 4, 0


def serial_number_exchange() -> Exchange[str | None]:
    """Ask for the serial number; the manufacturer's name replaces one that the BMC does not have.

    Returns ``None`` when there is neither, or nothing printable in them.
    """
    for field in (_SERIAL_NUMBER, _MANUFACTURER):
        reply = yield Request(0x30, 0x90, bytes((0x05, 0x00, 0x03, field, 0x00, 0xFF)))
        # Upstream takes a reply without text for a missing number, too (noded#4.2).
        if len(reply) > 1:
            return printable(reply[1:]) or None
    return None


def printable(content: bytes) -> str:
    """Return the text of a field, which may be padded with blanks and zero bytes, or empty.

    It is UTF-8, as upstream decodes it; other bytes are left out.
    """
    text = content.decode("utf-8", "ignore")
    return "".join(letter for letter in text if letter.isprintable()).strip()
