"""Ends of certificates in files, at once and when a file is replaced."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from agent.config import AgentConfiguration
from agent.wiring import certificate_files as agent_files
from aggregator.config import AggregatorConfiguration, GrpcSection
from aggregator.wiring import certificate_files as aggregator_files
from collectors.storage.collector import StorageSection
from service.tls import expiry
from service.tls.expiry import CertificateFiles, certificate_metric
from stores.certificates import last_end_of_pem
from stores.settings import Mqtt
from tests.parts.certificates import make_authority, make_client
from tests.parts.deadlines import patience, stays, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.server

DAY_MS = 86_400_000


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "_PERIOD_SECONDS", 0.05)


@asynccontextmanager
async def running(files: CertificateFiles) -> AsyncIterator[None]:
    task = asyncio.create_task(files.run())
    try:
        yield
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def days(files: CertificateFiles, file: Path) -> int | None:
    """Return in how many days, rounded, the certificate in ``file`` ends."""
    end_ms = files.ends_ms.get(str(file))
    return None if end_ms is None else round((end_ms - time.time() * 1000) / DAY_MS)


async def test_a_file_that_is_replaced_is_read_again(tmp_path: Path) -> None:
    make_authority(tmp_path, 60)
    make_client(tmp_path, "client", "group", 30)
    authority, own = tmp_path / "ca.crt", tmp_path / "client.crt"
    files = CertificateFiles((own, None), (authority, None))
    async with running(files):
        await until(lambda: days(files, own) == 30, "the certificate is read")
        assert days(files, authority) == 60
        make_client(tmp_path, "newer", "group", 90)
        (tmp_path / "newer.crt").replace(own)
        await until(lambda: days(files, own) == 90, "the newer one is read")
        own.write_text("is being written")
        await until(lambda: days(files, own) is None, "an unknown end is not shown")
        make_client(tmp_path, "client", "group", 10)
        await until(lambda: days(files, own) == 10, "it is read again")
        own.unlink()
        await until(lambda: days(files, own) is None, "a file that is gone is not shown")
        assert days(files, authority) == 60


async def test_a_file_that_stays_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_authority(tmp_path)
    readings = []

    def counting(text: str) -> object:
        readings.append(text)
        return original(text)

    original = last_end_of_pem
    monkeypatch.setattr(expiry, "last_end_of_pem", counting)
    async with running(CertificateFiles((), (tmp_path / "ca.crt",))):
        await until(lambda: len(readings) == 1, "it is read")
        await stays(0.5, because="the file is looked at ten times meanwhile")
    assert len(readings) == 1


async def test_a_disk_that_hangs_keeps_one_thread_and_what_was_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    deadline_seconds = patience(0.2)
    monkeypatch.setattr(expiry, "_DEADLINE_SECONDS", deadline_seconds)
    make_authority(tmp_path)
    pipe = tmp_path / "pipe.crt"
    files = CertificateFiles((pipe,), (tmp_path / "ca.crt",))
    async with running(files):
        await until(lambda: days(files, tmp_path / "ca.crt") == 30, "it is read")
        # Nobody writes to it: to open it waits, as on a disk that hangs.
        os.mkfifo(pipe)
        await until(lambda: "cannot be read within" in caplog.text, "the hang is named")
        await stays(deadline_seconds + 0.3, because="it is looked for more often meanwhile")
        assert days(files, tmp_path / "ca.crt") == 30
        assert caplog.text.count("cannot be read within") == 1
        with pipe.open("w") as writer:
            writer.write("nothing")


def test_each_file_is_a_series() -> None:
    metric = certificate_metric({"/b.crt": 2000, "/a.crt": 1500})
    assert [(sample.labels, sample.value) for sample in metric.samples] == [
        ({"file": "/a.crt"}, 1.5),
        ({"file": "/b.crt"}, 2.0),
    ]


async def ends_of(files: CertificateFiles, number: int) -> set[str]:
    """Return the names of the files with an end, once there are ``number`` of them."""
    async with running(files):
        await until(lambda: len(files.ends_ms) == number, lambda: f"read: {files.ends_ms}")
        return {Path(file).name for file in files.ends_ms}


async def test_certificates_of_a_broker_and_of_clusterd_are_watched(tmp_path: Path) -> None:
    make_authority(tmp_path)
    for name in ("mqtt", "clusterd", "unused"):
        make_client(tmp_path, name, "group")

    def section(name: str) -> dict[str, Any]:
        files = {"certificate_file": f"{name}.crt", "key_file": f"{name}.key", "ca_file": "ca.crt"}
        return {key: tmp_path / file for key, file in files.items()}

    configuration = AgentConfiguration(
        node_name="n",
        store="mqtts://broker:8883",
        mqtt=Mqtt(**section("mqtt")),
        storage=StorageSection(clusterd="127.0.0.1:1", **section("clusterd")),  # type: ignore[call-arg]
    )
    assert await ends_of(agent_files(configuration), 3) == {
        "ca.crt",
        "mqtt.crt",
        "clusterd.crt",
    }
    # Files of what is not used.
    other = msgspec.structs.replace(
        configuration,
        store="kubernetes:",
        storage=StorageSection(**section("unused")),
    )
    assert await ends_of(agent_files(other), 0) == set()


async def test_certificates_of_grpc_are_watched_by_the_aggregator(tmp_path: Path) -> None:
    make_authority(tmp_path)
    make_client(tmp_path, "grpc", "group")
    grpc = GrpcSection(
        listen="127.0.0.1:0",
        certificate_file=tmp_path / "grpc.crt",
        key_file=tmp_path / "grpc.key",
        client_ca_file=tmp_path / "ca.crt",
    )
    configuration = AggregatorConfiguration(grpc=grpc)
    assert await ends_of(aggregator_files(configuration), 2) == {"ca.crt", "grpc.crt"}
