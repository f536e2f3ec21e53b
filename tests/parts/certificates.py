"""Certificates for a control plane on 127.0.0.1, made by ``openssl``."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from tests.parts.processes import program

if TYPE_CHECKING:
    from pathlib import Path

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_DAYS = 30
_SERVER = (
    # The second is where pods look for it (the first address of the cluster's services).
    "subjectAltName=IP:127.0.0.1,IP:10.0.0.1,DNS:localhost",
    "extendedKeyUsage=serverAuth",
    "keyUsage=digitalSignature",
)
_CLIENT = ("extendedKeyUsage=clientAuth", "keyUsage=digitalSignature")
_AUTHORITY = ("basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign")


def make_authority(directory: Path, days: int = _DAYS) -> None:
    """Write ``ca.crt`` and ``ca.key``."""
    _request(directory, "ca", "/CN=npu-vigil-tests", _AUTHORITY, (), days)


def make_server(directory: Path) -> None:
    """Write ``server.crt`` and ``server.key`` for 127.0.0.1."""
    _request(directory, "server", "/CN=kube-apiserver", _SERVER, _signed(directory))


def make_client(directory: Path, user: str, group: str, days: int = _DAYS) -> None:
    """Write ``<user>.crt`` and ``<user>.key`` for a Kubernetes user in ``group``."""
    _request(directory, user, f"/O={group}/CN={user}", _CLIENT, _signed(directory), days)


def make_pki(directory: Path) -> None:
    """Write an authority, a server, and ``reader`` of the group ``readers`` as a client."""
    make_authority(directory)
    make_server(directory)
    make_client(directory, "reader", "readers")


def let_expire(directory: Path, name: str) -> None:
    """Sign ``<name>.crt`` anew so that it has ended yesterday."""
    certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
    request = directory / f"{name}.csr"
    x509 = [str(program("openssl")), "x509", "-copy_extensions", "copyall"]
    made = ["-x509toreq", "-in", str(certificate), "-signkey", str(key), "-out", str(request)]
    signed = ["-req", "-in", str(request), *_signed(directory), "-set_serial", "2", "-days", "-1"]
    for arguments in (made, [*signed, "-out", str(certificate)]):
        subprocess.run([*x509, *arguments], check=True, capture_output=True)


def _signed(directory: Path) -> tuple[str, ...]:
    return ("-CA", str(directory / "ca.crt"), "-CAkey", str(directory / "ca.key"))


def _request(
    directory: Path,
    name: str,
    subject: str,
    extensions: tuple[str, ...],
    signed: tuple[str, ...],
    days: int = _DAYS,
) -> None:
    arguments = [str(program("openssl")), "req", "-x509", *_KEY, *signed, "-subj", subject]
    arguments += ["-days", str(days)]
    arguments += ["-keyout", str(directory / f"{name}.key"), "-out", str(directory / f"{name}.crt")]
    for extension in extensions:
        arguments += ["-addext", extension]
    subprocess.run(arguments, check=True, capture_output=True)
