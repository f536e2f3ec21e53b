"""When certificates end, by their PEM or DER: read here since ``ssl`` reads no file of a client.

Only as much of X.509 is read as leads to the end (RFC 5280, 4.1).
"""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLOCK = re.compile(r"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _EXPLICIT_VERSION = 0x30, 0xA0
_UTC_TIME, _GENERALIZED_TIME = 0x17, 0x18
_FORMATS = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}
_BEFORE_VALIDITY = 3
"""Members of the certificate in front of it: serial number, algorithm, issuer (RFC 5280, 4.1)."""


def end_of_pem(text: str) -> datetime:
    """Return when the first certificate in a PEM file ends. Raises ``ValueError`` without one."""
    return next(_ends(text))


def last_end_of_pem(text: str) -> datetime:
    """Return when the last of the certificates in a PEM file ends, as of several authorities.

    During a rotation the earlier authority ends, and the file is good as long as the later one.
    Raises ``ValueError`` without a certificate.
    """
    return max(_ends(text))


def _ends(text: str) -> Iterator[datetime]:
    blocks = _BLOCK.findall(text)
    if not blocks:
        raise ValueError("has no certificate in it")
    for block in blocks:
        yield end_of_der(base64.b64decode("".join(block.split()), validate=True))


def end_of_der(content: bytes) -> datetime:
    """Return when a certificate ends. Raises ``ValueError`` for what is none."""
    try:
        _, body, _ = _element(_element(content, _SEQUENCE)[1], _SEQUENCE)
        tag, _, rest = _element(body)
        # Version 1 certificates have no version element; all later ones begin with it (RFC 5280,
        # 4.1).
        if tag == _EXPLICIT_VERSION:
            body = rest
        for _ in range(_BEFORE_VALIDITY):
            body = _element(body)[2]
        _, validity, _ = _element(body, _SEQUENCE)
        # Validity has two times; the second one is the end.
        tag, end, _ = _element(_element(validity)[2])
        return datetime.strptime(end.decode("ascii"), _FORMATS[tag]).replace(tzinfo=UTC)
    except (IndexError, KeyError, UnicodeDecodeError) as error:
        raise ValueError("is not a valid certificate") from error


def _element(content: bytes, wanted: int | None = None) -> tuple[int, bytes, bytes]:
    """Return tag and content of the first DER element, and what follows it."""
    tag, length, start = content[0], content[1], 2
    if wanted is not None and tag != wanted:
        raise ValueError("is not a valid certificate")
    # The long form of DER: the lower bits are how many bytes the length has.
    if length & 0x80:
        size = length & 0x7F
        length = int.from_bytes(content[2 : 2 + size], "big")
        start += size
    # A slice would be shorter without an error.
    if start + length > len(content):
        raise ValueError("is cut off")
    return tag, content[start : start + length], content[start + length :]
