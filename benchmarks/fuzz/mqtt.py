"""Messages of an MQTT broker: a line with the topic, and below it what is retained there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from typing_extensions import override

from benchmarks.fuzz.running import Target
from contract.errors import VigilError
from contract.topics import document_filters, filters_of
from stores.mqtt.beats import ReceivedHeartbeats
from stores.mqtt.documents import decode, encode
from stores.mqtt.session import Received
from stores.refusals import Refusals

if TYPE_CHECKING:
    from stores.base import Document

_DEVICE_INFO = {"labels": {"mx-consumer-cim": "true"}, "data": {"DeviceInfoCfg": '{"a": "<&>"}'}}
_TOUCHED = {"labels": {}, "annotations": {"npu-vigil/touched": "2026"}, "data": {"a": "é", "b": ""}}
_BEAT = {
    "node": "node-1",
    "connection": "0123456789ab",
    "holder": "machine/boot/state",
    "interval_seconds": 5.0,
    "beaten_at_ms": 1_800_000_000_000,
}
_WILL = {"node": "node-1", "connection": "0123456789ab", "is_broken": True}

DOCUMENTS = (
    "vigil/v1/nodes/node-1/device-info\n" + json.dumps(_DEVICE_INFO),
    "vigil/v1/nodes/node-1.example/node-info\n" + json.dumps(_TOUCHED),
    "vigil/v1/cluster/cluster-info-device-0\n" + json.dumps(_TOUCHED),
    "vigil/v1/config/kube-system/mindx-dl-fault-config\n" + json.dumps(_DEVICE_INFO),
)
BEATS = (
    "vigil/v1/nodes/node-1/beat\n" + json.dumps(_BEAT),
    "vigil/v1/nodes/node-1/beat\n" + json.dumps(_WILL),
)


class MqttDocuments(Target):
    """A document that is taken is written again as it was read, and is where it is looked for."""

    name = "mqtt-document"
    seeds = DOCUMENTS

    @override
    def feed(self, text: str) -> None:
        topic, _, payload = text.partition("\n")
        try:
            document = decode(topic, payload.encode("utf-8", "replace"))
        except ValueError as error:
            raise VigilError(str(error)) from None
        again = decode(topic, encode(document))
        assert _content(again) == _content(document)
        assert set(filters_of(topic)) & set(document_filters(document.namespace, None, None))
        assert topic in document_filters(document.namespace, document.name, None)


class MqttBeats(Target):
    """A beat that is refused leaves the one that was received before it."""

    name = "mqtt-beat"
    seeds = BEATS

    @override
    def feed(self, text: str) -> None:
        refusals = Refusals()
        processor = ReceivedHeartbeats(refusals)
        good = BEATS[0].partition("\n")
        processor.receive(Received(good[0], good[2].encode(), True))
        (before,) = processor.beat_of("node-1")
        topic, _, payload = text.partition("\n")
        processor.receive(Received(topic, payload.encode("utf-8", "replace"), False))
        if not refusals.is_empty:
            (after,) = processor.beats()
            assert (after.holder, after.is_broken) == (before.holder, False)
            raise VigilError("refused")
        assert all(beat.interval_seconds > 0 for beat in processor.beats())


def _content(document: Document) -> tuple[object, ...]:
    return (document.data, document.labels, document.annotations)
