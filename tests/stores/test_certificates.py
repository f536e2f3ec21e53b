"""When certificates end, read from any bytes and as ``openssl`` shows it."""

from __future__ import annotations

import ssl
import subprocess
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stores.certificates import end_of_der, end_of_pem, last_end_of_pem
from tests.parts.certificates import make_authority, make_client
from tests.parts.processes import program
from tests.tiers import needs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="module")
@needs("server")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an authority for 60 days, and a client of it for 30."""
    directory = tmp_path_factory.mktemp("authority")
    make_authority(directory, 60)
    make_client(directory, "someone", "group")
    return directory


@given(data=st.data())
def test_a_certificate_with_wrong_bytes(directory: Path, data: st.DataObject) -> None:
    broken = bytearray(ssl.PEM_cert_to_DER_cert((directory / "ca.crt").read_text()))
    places = st.integers(0, len(broken) - 1)
    for _ in range(data.draw(st.integers(1, 4))):
        broken[data.draw(places)] = data.draw(st.integers(0, 255))
    with suppress(ValueError):
        assert isinstance(end_of_der(bytes(broken)), datetime)


@given(st.binary(max_size=200))
def test_noise(noise: bytes) -> None:
    with suppress(ValueError):
        assert isinstance(end_of_der(noise), datetime)


def test_the_end_of_a_certificate_is_what_openssl_shows(directory: Path) -> None:
    file = directory / "someone.crt"
    end = end_of_pem(file.read_text())
    assert timedelta(days=29) < end - datetime.now(UTC) < timedelta(days=31)
    output = subprocess.run(
        [program("openssl"), "x509", "-noout", "-enddate", "-dateopt", "iso_8601", "-in", file],
        capture_output=True,
        text=True,
        check=True,
    )
    assert output.stdout.strip() == f"notAfter={end:%Y-%m-%d %H:%M:%SZ}"


def test_of_several_certificates_the_first_or_the_last_to_end_counts(directory: Path) -> None:
    client, authority = ((directory / name).read_text() for name in ("someone.crt", "ca.crt"))
    both = client + "a comment\n" + authority
    assert end_of_pem(both) == end_of_pem(client)
    assert last_end_of_pem(both) == last_end_of_pem(authority + client) == end_of_pem(authority)
    assert end_of_pem(authority) - end_of_pem(client) > timedelta(days=29)


@pytest.mark.parametrize("read", [end_of_pem, last_end_of_pem])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----\n",
        "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
    ],
)
def test_a_text_that_is_no_certificate_is_refused(
    read: Callable[[str], datetime], text: str
) -> None:
    with pytest.raises(ValueError):
        read(text)
