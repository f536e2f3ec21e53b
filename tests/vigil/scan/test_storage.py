"""``vigil scan`` of a host with shared storage."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from tests.parts.processes import free_ports
from tests.vigil.scan.server import OF_THE_MACHINE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.vigil.scan.server import Server

HEALTHY = "[instidx=0]\nDTFS_PROCESS_ERROR: 0\nDTFS_LINK_ERROR: 0\n"
FAULTY = "[instidx=0]\nDPC_INTERNAL_ERROR: 0\nDPC_PROCESS_ERROR: -1\n"


def give(server: Server, directory: Path, dpc: str, dtfs: str) -> None:
    """Write status files with this content and configure their paths."""
    for client, text in (("dpc", dpc), ("dtfs", dtfs)):
        file = directory / client
        file.write_text(text)
        file.chmod(0o644)
        server.environment[f"VIGIL_STORAGE_{client.upper()}_FILE"] = str(file)


def test_status_files_that_can_be_read(server: Server, tmp_path: Path) -> None:
    give(server, tmp_path, dpc=FAULTY, dtfs=HEALTHY)
    with socket.create_server(("127.0.0.1", 0)) as clusterd:
        address = f"127.0.0.1:{clusterd.getsockname()[1]}"
        server.environment["VIGIL_STORAGE_CLUSTERD"] = address
        scanned = server.scan()
    assert scanned.problems() <= OF_THE_MACHINE, "a fault of storage is none of the set-up"
    assert scanned.check("storage-dpc")["facts"] == {"instances": 1, "raised": ["110001020"]}
    assert scanned.check("storage-dtfs")["facts"] == {"instances": 1, "raised": []}
    assert address in scanned.check("clusterd")["found"]


def test_status_files_without_content(server: Server, tmp_path: Path) -> None:
    give(server, tmp_path, dpc=HEALTHY, dtfs=HEALTHY)
    (tmp_path / "dtfs").chmod(0o666)
    server.environment["VIGIL_STORAGE_CLUSTERD"] = f"127.0.0.1:{free_ports(1)[0]}"
    scanned = server.scan()
    assert scanned.problems() - OF_THE_MACHINE == {"storage-dpc", "storage-dtfs", "clusterd"}
    assert "line 2" in scanned.check("storage-dpc")["found"]
    assert "others may write it" in scanned.check("storage-dtfs")["found"]
    assert "refused" in scanned.check("clusterd")["found"]
    assert scanned.status == 1


def test_an_agent_without_node_info_reports_no_storage(server: Server) -> None:
    server.environment["VIGIL_STORAGE_CLUSTERD"] = f"127.0.0.1:{free_ports(1)[0]}"
    scanned = server.scan("--documents", "device-info")
    assert scanned.check("clusterd")["state"] == "not-applicable"
