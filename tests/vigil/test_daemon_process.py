"""Threads of a daemon share one arena; it has small buffers, and loads only what it uses."""

from __future__ import annotations

import _ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.parts.deadlines import patience
from tests.parts.verbs import changed_agent

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

_CODE = """
import ctypes, threading
from vigil.daemon_process import daemon_process
with daemon_process():
    threads = [threading.Thread(target=bytearray, args=(10_000,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ctypes.CDLL(None).malloc_stats()
"""


@pytest.mark.parametrize(
    ("given", "is_one"), [({}, True), ({"MALLOC_ARENA_MAX": "8"}, False)], ids=["own", "given"]
)
def test_threads_share_one_arena_unless_the_environment_has_another_number(
    given: dict[str, str], is_one: bool
) -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("MALLOC_ARENA_MAX",)}
    found = subprocess.run(
        [sys.executable, "-c", _CODE],
        env=environment | given,
        check=True,
        capture_output=True,
        text=True,
    )
    assert (found.stderr.count("Arena ") == 1) is is_one, found.stderr


_MAPPED = """
import ctypes, sys
from vigil.daemon_process import daemon_process
with daemon_process():
    blocks = [bytearray(70_000) for _ in range(10)]  # glibc itself maps from 128 KiB on
    ctypes.CDLL(None).malloc_stats()
"""


@pytest.mark.parametrize(
    ("given", "are_mapped"),
    [({}, True), ({"MALLOC_MMAP_THRESHOLD_": "1000000"}, False)],
    ids=["own", "given"],
)
def test_large_blocks_are_mapped_unless_the_environment_has_another_size(
    given: dict[str, str], are_mapped: bool
) -> None:
    found = subprocess.run(
        [sys.executable, "-c", _MAPPED],
        env=os.environ | given,
        check=True,
        capture_output=True,
        text=True,
    )
    regions = re.search(r"max mmap regions = +(\d+)", found.stderr)
    assert regions is not None
    assert (int(regions[1]) >= 10) is are_mapped, found.stderr


_GAPS = """
import gc, sys
from pathlib import Path
from vigil.daemon_process import daemon_process
def resident_kib():
    line = next(l for l in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in l)
    return int(line.split()[1])
with daemon_process():
    blocks = [bytearray(20_000) for _ in range(1_000)]  # of the heap, not mapped
    del blocks[::2]
    before = resident_kib()
    gc.collect(1)
    young = resident_kib()
    gc.collect()
    print(before - young, young - resident_kib(), file=sys.stderr)
"""


def test_a_full_collection_returns_the_gaps_of_the_heap() -> None:
    found = subprocess.run(
        [sys.executable, "-c", _GAPS], check=True, capture_output=True, text=True
    )
    young_kib, full_kib = map(int, found.stderr.split())
    assert young_kib < 1_000
    assert full_kib > 6_000


_HANGING = """
import os, signal, threading
from vigil.daemon_process import daemon_process
with daemon_process():
    def hang():
        os.kill(os.getpid(), signal.SIGABRT)
        threading.Event().wait()
    hang()
"""


def test_a_process_that_is_aborted_shows_where_it_hung() -> None:
    """This is how the watchdog of systemd ends one that hangs."""
    aborted = subprocess.run(
        [sys.executable, "-c", _HANGING], check=False, capture_output=True, text=True
    )
    assert aborted.returncode == -signal.SIGABRT
    assert "in hang\n" in aborted.stderr


_BUFFER = """
import asyncio, os, ssl
from asyncio.sslproto import SSLProtocol
from vigil.daemon_process import daemon_process

loop = asyncio.new_event_loop()
with daemon_process():
    context = ssl.create_default_context()
    given = SSLProtocol(loop, asyncio.Protocol(), context, None, server_hostname="h").get_buffer(-1)
    os.write(1, b"%d" % len(given))
"""


def test_a_tls_connection_has_a_short_buffer() -> None:
    """The attribute of asyncio that sets it is no public one."""
    printed = subprocess.run([sys.executable, "-c", _BUFFER], check=True, capture_output=True)
    assert int(printed.stdout) == 65_536


_STARTED_DRIVER = """
import os, sys
import agent.daemon
from dcmi_shim.library.discovery import VendorPaths, find_library

def run(configuration, first):
    paths = VendorPaths(configuration.driver_root, configuration.trust_driver, os.environ)
    print(first.suits(find_library(paths)), file=sys.stderr)
    first.close()
    return 0

agent.daemon.run = run
from vigil.main import main
main()
"""


def test_the_agent_begins_with_a_process_that_suits_its_library(tmp_path: Path) -> None:
    library = tmp_path / "lib64/driver/libdcmi.so"
    library.parent.mkdir(parents=True)
    shutil.copy(_ctypes.__file__, library)  # any shared object; nothing opens it
    found = changed_agent(_STARTED_DRIVER, tmp_path)
    assert found.returncode == 0
    assert found.stderr == "True\n"


_LOADING = """
import gc, os
from vigil.daemon_process import loading
with loading():
    import aiohttp
    assert not gc.isenabled()
print(os.environ.get("SSL_CERT_FILE"), gc.isenabled(), gc.get_freeze_count() > 10_000)
before = gc.get_stats()[2]["collections"]
objects = [[] for _ in range(30_000)]  # 80,000 begin a full collection by Python's own thresholds
print(gc.get_stats()[2]["collections"] > before)
"""


def test_loading_reads_no_certificates_of_the_host(tmp_path: Path) -> None:
    certificates = tmp_path / "certificates"
    # A process that reads it waits for a writer, which never comes.
    os.mkfifo(certificates)
    for given, named in (({"SSL_CERT_FILE": str(certificates)}, str(certificates)), ({}, "None")):
        environment = {k: v for k, v in os.environ.items() if k != "SSL_CERT_FILE"}
        loaded = subprocess.run(
            [sys.executable, "-c", _LOADING],
            env=environment | given,
            check=True,
            capture_output=True,
            text=True,
            timeout=patience(10),
        )
        assert loaded.stdout.split() == [named, "True", "True", "True"]
