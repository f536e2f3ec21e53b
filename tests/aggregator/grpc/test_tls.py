"""Who gets in: mutual TLS by default, and files that are replaced while it runs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import grpc
import grpc.aio
import pytest

from aggregator.grpc.endpoint import TlsFiles, TlsMaterial
from contract.errors import ConfigurationError
from tests.aggregator.grpc.bench import Bench, tls_files
from tests.aggregator.grpc.upstream import Client
from tests.parts import certificates
from tests.tiers import needs

GET = "fault.Fault/GetFaultMsgSignal"


@pytest.fixture(scope="module")
@needs("server")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return certificates of two unrelated authorities."""
    places = tmp_path_factory.mktemp("ours"), tmp_path_factory.mktemp("theirs")
    for place in places:
        certificates.make_authority(place)
        certificates.make_server(place)
        certificates.make_client(place, "client", "mindx")
    return places


@pytest.fixture
def place(made: tuple[Path, Path], tmp_path: Path) -> Path:
    """Return the folder of the server's files, which may be replaced."""
    return shutil.copytree(made[0], tmp_path / "pki")


def replace(place: Path, *sources: Path) -> None:
    """Put these files there, each by a rename."""
    for source in sources:
        draft = place / ".draft"
        shutil.copy(source, draft)
        draft.replace(place / source.name)


def credentials(authority: Path, client: Path | None) -> grpc.ChannelCredentials:
    """Return credentials that trust one authority and show a certificate of another, or none."""
    root = (authority / "ca.crt").read_bytes()
    if client is None:
        return grpc.ssl_channel_credentials(root)
    key, certificate = (client / "client.key").read_bytes(), (client / "client.crt").read_bytes()
    return grpc.ssl_channel_credentials(root, key, certificate)


async def gets_in(target: str, authority: Path, client: Path | None) -> bool:
    """Return whether such a client is answered; otherwise it must not even have a connection."""
    async with Client(target, credentials(authority, client)) as one:
        try:
            answer = await one.ask(GET)
        except grpc.aio.AioRpcError as error:
            assert error.code() is grpc.StatusCode.UNAVAILABLE  # noqa: PT017
            return False
        return bool(answer["code"] == 200)


async def test_only_clients_with_a_certificate_of_the_authority(
    made: tuple[Path, Path], place: Path
) -> None:
    ours, theirs = made
    async with Bench().serving(tls=tls_files(place)) as target:
        assert await gets_in(target, ours, ours)
        assert not await gets_in(target, ours, None)
        assert not await gets_in(target, ours, theirs)
        assert not await gets_in(target, theirs, ours)
        async with Client(target) as plain:
            with pytest.raises(grpc.aio.AioRpcError, match="UNAVAILABLE"):
                await plain.ask(GET)


async def test_replaced_files_count_from_the_next_connection_on(
    made: tuple[Path, Path], place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = made
    bench = Bench()
    async with bench.serving(tls=tls_files(place)) as target:
        assert bench.server is not None
        async with Client(target, credentials(ours, ours)) as before:
            assert (await before.ask(GET))["code"] == 200
            # The certificate alone does not belong to the key: what was good goes on.
            replace(place, theirs / "server.crt", theirs / "ca.crt")
            assert await gets_in(target, ours, ours)
            assert await gets_in(target, ours, ours)
            assert bench.server.status().tls_problem is not None
            assert caplog.text.count("are not used") == 1
            replace(place, theirs / "server.key")
            assert await gets_in(target, theirs, theirs)
            assert not await gets_in(target, ours, ours)
            assert bench.server.status().tls_problem is None
            assert (await before.ask(GET))["code"] == 200, "who is in stays in"
        (place / "server.key").unlink()
        assert await gets_in(target, theirs, theirs)
        # A replica that leads again begins with what was good last.
        await bench.server.stop()
        await bench.server.start()
        assert await gets_in(bench.target, theirs, theirs)


@pytest.mark.server
async def test_with_certificates_as_the_guide_makes_them(tmp_path: Path) -> None:
    maker = Path(__file__).parents[3] / "systemd" / "make-certificates"
    pki = tmp_path / "pki"
    names = ("clusterd-grpc-svc.mindx-dl", "127.0.0.1")
    for what in (("authority",), ("grpc", *names), ("client", "ccae"), ("node", "node-1")):
        subprocess.run([maker, pki, *what], check=True, capture_output=True)
    root = (pki / "authority.crt").read_bytes()
    files = TlsFiles(pki / "grpc.crt", pki / "grpc.key", pki / "authority.crt")
    async with Bench().serving(tls=files) as target:
        for who in ("ccae", "node-1"):
            mine = (pki / f"{who}.key").read_bytes(), (pki / f"{who}.crt").read_bytes()
            async with Client(target, grpc.ssl_channel_credentials(root, *mine)) as client:
                assert (await client.ask(GET))["code"] == 200
        # A certificate of a server opens nothing.
        mine = (pki / "grpc.key").read_bytes(), (pki / "grpc.crt").read_bytes()
        async with Client(target, grpc.ssl_channel_credentials(root, *mine)) as client:
            with pytest.raises(grpc.aio.AioRpcError, match="UNAVAILABLE"):
                await client.ask(GET)


def spoiled(place: Path, name: str, content: bytes | None) -> None:
    if content is None:
        (place / name).unlink()
    else:
        (place / name).write_bytes(content)


@pytest.mark.parametrize(
    ("name", "content", "where"),
    [
        ("server.crt", None, "grpc.certificate_file"),
        ("server.key", None, "grpc.key_file"),
        ("ca.crt", None, "grpc.client_ca_file"),
        ("server.crt", b"", "grpc.certificate_file"),
        ("server.key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "grpc.c"),
        ("ca.crt", b"nothing", "grpc.client_ca_file"),
        ("ca.crt", b"", "grpc.client_ca_file"),
    ],
)
def test_files_that_cannot_be_used_are_a_wrong_configuration(
    place: Path, name: str, content: bytes | None, where: str
) -> None:
    spoiled(place, name, content)
    with pytest.raises(ConfigurationError, match=where) as caught:
        TlsMaterial(tls_files(place))
    assert str(place / name) in str(caught.value)


def test_a_key_with_a_password_is_not_asked_for(place: Path) -> None:
    encrypted = place / "encrypted.key"
    command = ["openssl", "pkey", "-in", str(place / "server.key"), "-aes128", "-passout", "pass:x"]
    subprocess.run([*command, "-out", str(encrypted)], check=True)
    with pytest.raises(ConfigurationError, match="without a password"):
        TlsMaterial(TlsFiles(place / "server.crt", encrypted, place / "ca.crt"))


def test_all_that_is_missing_is_logged_at_once(place: Path) -> None:
    for name in ("server.crt", "server.key", "ca.crt"):
        spoiled(place, name, None)
    with pytest.raises(ConfigurationError) as caught:
        TlsMaterial(tls_files(place))
    assert len(caught.value.problems) == 3
