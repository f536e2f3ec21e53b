"""Fault codes: how they are written, and the ones that mean something to the program.

Sources: ``device-plugin#0`` and 2.5. On the wire a code is upper-case hexadecimal without
``0x``: eight digits from the driver, nine for codes that a program made up, whose leading zero
belongs to the name (``020001002``).
"""

from __future__ import annotations

import re

LINK_DOWN = "81078603"
UBOE_PORT_DOWN = "81078607"
UBOE_SUB_HEALTH = "110000002"
UBOE_PRE_SEPARATE = "110001024"
UB_PORT_DOWN = "81B18603"
UB_SEPARATE = "020001002"
UB_SUB_HEALTH = "020000002"
RESET_FINISHED = "8C2FA009"
CARD_DROP = "40F84E00"
HANG = "200001002"
HBM_MULTI_BIT = "80E01801"
AIC_BUS = "80C98009"
AIV_BUS = "80CB8009"

NETWORK_FAULT_CODES = frozenset({LINK_DOWN, UBOE_PORT_DOWN, UBOE_SUB_HEALTH, UBOE_PRE_SEPARATE})
"""Codes of the parameter plane; all others are the chip's own."""

_DRIVER_CODE_MAX = 0xFFFFFFFF
_CODE = re.compile(r"(?:0x)?([0-9a-f]{8,9})", re.IGNORECASE | re.ASCII)


def format_code(value: int) -> str:
    """Return the text of a code that was given as a number of 32 bits."""
    if not 0 <= value <= _DRIVER_CODE_MAX:
        raise ValueError(f"{value} is not a valid fault code of 32 bits")
    return f"{value:08X}"


def parse_code(text: str) -> str:
    """Return the code in ``text`` as on the wire; people may write lower case and ``0x``."""
    match = _CODE.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"{text!r} is not a valid fault code: 8 or 9 hexadecimal digits are expected"
        )
    return match[1].upper()


def is_code(text: str) -> bool:
    """Return whether ``text`` is a code exactly as on the wire."""
    match = _CODE.fullmatch(text)
    return match is not None and match[1].upper() == text


def is_network(code: str) -> bool:
    """Return whether ``code`` is about the network of a chip instead of the chip."""
    return code in NETWORK_FAULT_CODES


# Their names have nine digits, which a number alone does not show (device-plugin#0).
_MADE_UP = {
    int(code, 16): code
    for code in (UBOE_SUB_HEALTH, UBOE_PRE_SEPARATE, UB_SEPARATE, UB_SUB_HEALTH, HANG)
}


def code_of(number: int) -> str:
    """Return the text of a code that the driver gives, or a configuration names, by its number.

    ``020001002`` keeps the zero that is part of its name (``device-plugin#2.5``). Raises
    ``ValueError`` for a number that no code has.
    """
    if number in _MADE_UP:
        return _MADE_UP[number]
    code = f"{number:08X}"
    if not is_code(code):
        raise ValueError("no fault code is negative or has more than 9 digits")
    return code
