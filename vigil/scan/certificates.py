"""Reads and checks when a certificate ends; the standard library does not read that from a file."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from contract.counted import counted
from vigil.exit_status import ExitStatus
from vigil.scan.findings import ok, problem

if TYPE_CHECKING:
    from vigil.scan.findings import Check

_BLOCK = re.compile(r"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _EXPLICIT_VERSION = 0x30, 0xA0
_UTC_TIME, _GENERALIZED_TIME = 0x17, 0x18
_FORMATS = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}
_SOON = timedelta(days=14)
_BEFORE_VALIDITY = 3
"""Members of the certificate in front of it: serial number, algorithm, issuer (RFC 5280, 4.1)."""


def end_of_pem(text: str) -> datetime:
    """Return when the first certificate in a PEM file ends. Raises ``ValueError`` without one."""
    found = _BLOCK.search(text)
    if found is None:
        raise ValueError("has no certificate in it")
    return end_of_der(base64.b64decode("".join(found[1].split()), validate=True))


def end_of_der(content: bytes) -> datetime:
    """Return when a certificate ends. Raises ``ValueError`` for what is none."""
    try:
        _, body, _ = _element(_element(content, _SEQUENCE)[1], _SEQUENCE)
        tag, _, rest = _element(body)
        if tag == _EXPLICIT_VERSION:
            body = rest
        for _ in range(_BEFORE_VALIDITY):
            body = _element(body)[2]
        _, validity, _ = _element(body, _SEQUENCE)
        tag, end, _ = _element(_element(validity)[2])
        return datetime.strptime(end.decode("ascii"), _FORMATS[tag]).replace(tzinfo=UTC)
    except (IndexError, KeyError, UnicodeDecodeError) as error:
        raise ValueError("is no certificate") from error


def check_end(name: str, found: str, end: datetime) -> Check:
    """Return the check ``name``: a problem for a certificate that has ended or ends soon.

    ``found`` states what the certificate is.
    """
    left = end - datetime.now(UTC)
    found = f"{found} until {end:%Y-%m-%d} ({counted(left.days, 'day')})"
    facts: dict[str, object] = {"ends": f"{end:%Y-%m-%dT%H:%M:%SZ}", "days": left.days}
    if left < timedelta():
        return problem(name, f"{found}: it has ended", "renew it", ExitStatus.OUTSIDE, facts)
    if left < _SOON:
        return problem(name, f"{found}: it ends soon", "renew it before", facts=facts)
    return ok(name, found, facts=facts)


def _element(content: bytes, wanted: int | None = None) -> tuple[int, bytes, bytes]:
    """Return tag and content of the first DER element, and what follows it."""
    tag, length, start = content[0], content[1], 2
    if wanted is not None and tag != wanted:
        raise ValueError("is no certificate")
    if length & 0x80:
        size = length & 0x7F
        length = int.from_bytes(content[2 : 2 + size], "big")
        start += size
    if start + length > len(content):
        raise ValueError("is cut off")
    return tag, content[start : start + length], content[start + length :]
