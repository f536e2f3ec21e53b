"""The end of a certificate, read from any bytes, and judged."""

from __future__ import annotations

import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.parts.certificates import make_authority
from tests.tiers import needs
from vigil.scan.broker import check_end, end_of_der
from vigil.scan.findings import CheckState

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
@needs("server")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Make an authority; return its certificate in DER."""
    place: Path = tmp_path_factory.mktemp("authority")
    make_authority(place)
    return ssl.PEM_cert_to_DER_cert((place / "ca.crt").read_text())


@given(data=st.data())
def test_a_certificate_with_wrong_bytes(certificate: bytes, data: st.DataObject) -> None:
    broken = bytearray(certificate)
    places = st.integers(0, len(broken) - 1)
    for _ in range(data.draw(st.integers(1, 4))):
        broken[data.draw(places)] = data.draw(st.integers(0, 255))
    with suppress(ValueError):
        assert isinstance(end_of_der(bytes(broken)), datetime)


@given(st.binary(max_size=200))
def test_noise(noise: bytes) -> None:
    with suppress(ValueError):
        assert isinstance(end_of_der(noise), datetime)


@pytest.mark.parametrize(
    ("days", "state"),
    [(-1, CheckState.PROBLEM), (13.9, CheckState.PROBLEM), (14.1, CheckState.OK)],
)
def test_certificate_that_ends_within_two_weeks_is_a_problem(
    days: float, state: CheckState
) -> None:
    end = datetime.now(UTC) + timedelta(days=days)
    assert check_end("broker-tls", "the certificate is good", end).state is state
