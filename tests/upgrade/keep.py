"""Keeps what agents and an aggregator of this version have written, with 20 faults under way.

    python -m tests.upgrade.keep

It writes ``tests/upgrade/VERSION/STORE.tar.gz`` for each kind of store. Real daemons run on the
emulator, a directory, a real API server and a real broker. Run it once for each release, in its
commit; archives of earlier releases stay as they are.
"""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

from contract.documents.public_fault import (
    Influence,
    PublicFault,
    PublicFaultEntry,
    encode_public_fault,
)
from contract.names import PUBLIC_FAULT_LABEL, PUBLIC_FAULT_NAMESPACE
from dcmi_shim.emulator.install import install
from release.sbom import PRODUCT
from stores.base import Document
from tests.aggregator.daemon import put_documents
from tests.parts.broker import Broker
from tests.parts.controlplane import ControlPlane
from tests.parts.deadlines import wait_until
from tests.parts.verbs import run_vigil
from tests.upgrade.site import KEPT, ApiServerStore, BrokerStore, DirectoryStore, Site

_SECONDS = 60.0
_FREQUENT = "80E01801"
"""Twice within a day separates a chip by hand, as MindCluster ships its rules."""
_CHIPS = {
    "node-1": (
        *((0, "80E18402"), (0, "80818C05"), (1, "8118043C"), (2, _FREQUENT), (3, "80C98001")),
        *((4, "80AD8009"), (5, "81B38002"), (6, "80BB8003"), (7, "80818C06"), (7, "80818200")),
    ),
    "node-2": (
        *((1, "80DF8402"), (2, "8F180220"), (3, "80CB8001"), (4, "81CB8003"), (5, "8C204E00")),
        *((6, "80BB8009"), (7, "80DE0207")),
    ),
}
_BMC = {"node-1": (("2C000031", "System", 0),), "node-2": (("06000025", "Fan", 3),)}
FAULTS = 20
"""17 of chips, two of the BMCs and one that another program reports."""


def main() -> None:
    """Make the archive of each store."""
    target = KEPT / version(PRODUCT)
    target.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as servers:
        base = Path(folder)
        install(base / "driver", base / "emulator")
        (base / "plane").mkdir()
        (base / "broker").mkdir()
        plane = servers.enter_context(ControlPlane(base / "plane"))
        broker = servers.enter_context(Broker(base / "broker"))
        for store in (
            DirectoryStore(base / "store"),
            ApiServerStore(plane),
            BrokerStore(broker),
        ):
            site = Site(base / store.name, base, store)
            try:
                archive = _kept(site)
            finally:
                site.close()
            (target / f"{store.name}.tar.gz").write_bytes(archive)
            sys.stdout.write(f"{store.name}: {len(archive)} bytes\n")


def _kept(site: Site) -> bytes:
    at_seconds = int(time.time())
    faults: dict[str, Any] = {
        node: {"chips": _CHIPS[node], "bmc": [(*alarm, at_seconds) for alarm in _BMC[node]]}
        for node in _CHIPS
    }
    site.start_agents()
    site.aggregator.start()
    first = site.nodes[0]
    first.emulator.occur(2, _FREQUENT)
    wait_until(lambda: len(site.faults()) == 1, "the fault that comes twice is shown", _SECONDS)
    first.emulator.recover(2, _FREQUENT)
    wait_until(lambda: not site.faults(), "it is over once", _SECONDS)
    site.raise_faults(faults)
    _report_public_fault(site, at_seconds * 1000)
    wait_until(lambda: len(site.faults()) == FAULTS, lambda: _codes(site.faults()), _SECONDS)
    status, lines, errors = run_vigil(
        *("isolate", "node-2", "0", "--reason", "upgrade", "--yes"), *site.store.options, "--json"
    )
    assert status == 0, (lines, errors)
    wait_until(lambda: site.proof()["gaps"] == [], lambda: site.proof()["gaps"], _SECONDS)
    documents = site.documents()
    faults["shown"] = site.faults()
    # The agents first: an aggregator that goes on publishes them as they were.
    site.stop_agents()
    site.wait_until_equal(documents)
    site.aggregator.stop()
    assert site.documents() == documents
    return site.kept(faults, at_seconds)


def _report_public_fault(site: Site, at_ms: int) -> None:
    """Report a fault of a chip as CCAE does: in a document."""
    influence = [Influence("node-2", "", [0])]
    entry = PublicFaultEntry("fault-0001", "NPU", "220001001", at_ms, "occur", influence=influence)
    data = encode_public_fault(PublicFault("message-1", at_ms, "1.0", "CCAE", [entry]))
    labels = dict([PUBLIC_FAULT_LABEL])
    document = Document(PUBLIC_FAULT_NAMESPACE, "ccae-fault", data, labels)
    options = site.store.options
    if isinstance(site.store, ApiServerStore):
        put_documents(site.store.plane, document)
    else:
        put_documents(options[1], document)


def _codes(faults: list[dict[str, Any]]) -> str:
    return ", ".join(f"{fault['node']} {fault['subject']} {fault['code']}" for fault in faults)


if __name__ == "__main__":
    main()
