"""What the aggregator reads of public faults: messages, its tables, and what earlier runs left."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from aggregator.plugin import LAST
from aggregator.public_faults.plugin import MESSAGES, STATISTIC, PublicFaultsPlugin
from contract.documents.cluster_device import DeviceRecord, render_device_entry
from contract.documents.cluster_info import member, value_of, verify_device_value
from contract.documents.public_fault import DATA_KEY
from contract.errors import VigilError
from contract.names import PUBLIC_FAULT_LABEL, device_info_name
from service.clock import Instant
from stores.base import Changed, Document, DocumentsListed
from tests.aggregator.public_faults.known import KnownPlaces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NODE, OTHER = "node-1", "node-2"
_NOW_MS = 1_800_000_000_000
_CHIPS = tuple(f"Ascend910-{number}" for number in range(8))
_RECORD = DeviceRecord("Ascend910", _CHIPS, (), (), (), (), 1_800_000_000, -2, 0, -2)


def _message(assertion: str, node: str = NODE, device: int = 3, name: str = "fault") -> str:
    influence = [{"nodeName": node, "deviceIds": [device, 0]}]
    fault = {
        "faultId": f"{name}-0001",
        "faultType": "NPU",
        "faultCode": "220001001",
        "faultTime": _NOW_MS,
        "assertion": assertion,
        "influence": influence,
    }
    milder = fault | {"faultId": f"{name}-0002", "faultCode": "010001001"}
    message = {
        "id": "message-1",
        "timestamp": _NOW_MS,
        "version": "1.0",
        "resource": "CCAE",
        "faults": [fault, milder],
    }
    return json.dumps(message)


def _begun(texts: Mapping[str, str], statistic: Mapping[str, str]) -> PublicFaultsPlugin:
    places = KnownPlaces()
    places.synced = True
    for node in (NODE, OTHER):
        places.see_report(node, _RECORD)
    faults = PublicFaultsPlugin(places)
    faults.restore(texts, _at(0))
    left = Document("cluster-system", "statistic-fault-info", dict(statistic))
    faults.observe(0, STATISTIC, DocumentsListed((left,) if statistic else ()), _at(0))
    faults.step(_at(0))
    return faults


def _at(seconds: int) -> Instant:
    return Instant(_NOW_MS + seconds * 1000, seconds * 1000)


def _check(faults: PublicFaultsPlugin) -> None:
    """Check that what is published of a node can be read, and that the next run has the
    same state.
    """
    for node in (NODE, OTHER):
        record = faults.add_public_faults(node, _RECORD, _at(0))
        entry = render_device_entry(node, record, record.update_time)
        value = value_of([member(device_info_name(node), entry)])
        try:
            verify_device_value(value, "cluster-info-device-0", 1)
        except VigilError as error:
            raise AssertionError(str(error)) from None
    buckets = {f"{number:02}" for number in range(32)}
    texts = {b: text for b in (*buckets, f"{LAST}about") if (text := faults.text(b)) is not None}
    again = _begun(texts, {})
    assert again.status().standing == faults.status().standing
    assert again.views() == faults.views()


class ReceivedPublicFaults:
    """Documents, one after the other; whatever is in them, another node's fault stands."""

    name = "public-fault-document"
    seeds: Sequence[str] = tuple(_message(word) for word in ("occur", "recover", "once"))

    def __init__(self) -> None:
        self._faults = _begun({}, {})
        self._second = 0
        # With a name that is in no good input: a message may end it by its name and node.
        self._apply("other", _message("occur", OTHER, 5, "other"))

    def feed(self, text: str) -> None:
        """Apply ``text``; what is refused is reported as such."""
        self._second += 1
        self._faults.step(_at(self._second))
        place = f"doc-{self._second % 50}"
        self._apply(place, text)
        record = self._faults.add_public_faults(OTHER, _RECORD, _at(self._second))
        assert "Ascend910-5" in record.unhealthy
        if self._second % 50 == 0:
            _check(self._faults)
        if f"public faults in default/{place}" in self._faults.status().troubles:
            raise VigilError("refused")

    def _apply(self, name: str, text: str) -> None:
        document = Document("default", name, {DATA_KEY: text}, dict([PUBLIC_FAULT_LABEL]))
        self._faults.observe(0, MESSAGES, Changed(document), _at(self._second))


class PublicFaultTables:
    """Codes and resources; a bad text leaves what stands as it is."""

    name = "public-fault-table"
    seeds: Sequence[str] = (
        '{"publicFaultCode":{"NotHandleFaultCodes":["200001006"],"SubHealthFaultCodes":'
        '["010001001"],"SeparateNPUCodes":["220001001"],"PreSeparateNPUCodes":["110001022"]},'
        '"publicFaultResource":["CCAE","dpcStorage"]}',
        '{"publicFaultCode":{"NotHandleFaultCodes":["220001001","100000001"]},'
        '"publicFaultResource":["Netmind"]}',
    )

    def feed(self, text: str) -> None:
        """Configure ``text``."""
        faults = _begun({}, {})
        document = Document(
            "default", "d", {DATA_KEY: _message("occur")}, dict([PUBLIC_FAULT_LABEL])
        )
        faults.observe(0, MESSAGES, Changed(document), _at(0))
        before = faults.views()
        faults.configure(text)
        assert faults.status().standing == 2
        if faults.status().table == "shipped":
            assert faults.views() == before
            raise VigilError("refused")


class LeftPublicFaults:
    """What an earlier run or upstream left; what of it is taken can be published."""

    name = "public-fault-state"

    def __init__(self) -> None:
        faults = _begun({}, {})
        for number, assertion in enumerate(("occur", "once", "recover")):
            text = _message(assertion, NODE if number else OTHER)
            document = Document(
                "default", f"d-{number}", {DATA_KEY: text}, dict([PUBLIC_FAULT_LABEL])
            )
            faults.observe(0, MESSAGES, Changed(document), _at(number))
        buckets = [kept for b in range(32) if (kept := faults.text(f"{b:02}")) is not None]
        (view,) = faults.views()
        assert view.data is not None
        self.seeds: Sequence[str] = (*buckets, view.data["PublicFaults"])

    def feed(self, text: str) -> None:
        """Begin with ``text``."""
        _check(_begun({}, {"PublicFaults": text}))
        if '"devIds"' in text:
            return
        faults = PublicFaultsPlugin(KnownPlaces())
        for problem in faults.restore({"07": text}, _at(0)):
            raise VigilError(problem)
        faults = _begun({"07": text}, {})
        faults.step(_at(100))
        _check(faults)
