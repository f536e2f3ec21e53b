"""Every input of the aggregator, fed to the whole daemon in virtual time between good ones.

A nonsense document neither ends the daemon nor touches another node: what is published of a node
that does not change stays byte-identical, what changes is published, and the first good document
after a bad one counts. Own documents are read back by a new life of the daemon.
"""

from __future__ import annotations

import atexit
import json
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import looptime
import msgspec

from contract.errors import VigilError
from contract.go import encode as go_json
from contract.names import CLUSTER_NODE_NAME, REPORT_LABEL
from tests.cluster.playing import Cluster, broken
from tests.contract.documents.clusterd_examples import EXAMPLES
from tests.contract.documents.node_documents import config, fault, node_data

if TYPE_CHECKING:
    from collections.abc import Callable

BAD, STEADY, CHANGING = "bad-node", "steady-node", "changing-node"
_SOON = 2**-5
_EVERY = 16
"""So often the changing node changes: a second must pass between."""
_PACE_SECONDS = 1.25
_START_SECONDS = 2**-3
_SWITCH = {"SwitchInfoCfg": EXAMPLES["E17"]["input"]}
_OUTPUTS = ("cluster-info-device-0", "cluster-info-switch-0", CLUSTER_NODE_NAME)

_Raws = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _config_map(
    namespace: str, name: str, data: dict[str, str], label: tuple[str, str] | None = REPORT_LABEL
) -> dict[str, Any]:
    labels = {} if label is None else dict([label])
    return {"namespace": namespace, "name": name, "labels": labels, "data": data}


def _device(key: str, text: str) -> dict[str, Any]:
    data = config(update_time=1_760_000_001) | {key: text}
    return _config_map("kube-system", f"mindx-dl-deviceinfo-{BAD}", data)


def _server(text: str) -> dict[str, Any]:
    return _config_map("mindx-dl", f"mindx-dl-nodeinfo-{BAD}", {"NodeInfo": text})


def _pod(key: str, text: str) -> dict[str, Any]:
    annotations = {
        "huawei.com/AscendReal": "Ascend910-0,Ascend910-1",
        "hccl/rankIndex": "0",
        "scheduling.k8s.io/group-name": BAD,
        key: text,
    }
    return {
        "namespace": "default",
        "name": BAD,
        "metadata": {"annotations": annotations, "ownerReferences": _OWNERS},
        "spec": {"nodeName": BAD},
        "status": {"phase": "Running"},
    }


def _group(text: str) -> dict[str, Any]:
    both = {f"huawei.com/schedule.filter.fault{what}": text for what in ("Code", "Level")}
    return {
        "namespace": "default",
        "name": BAD,
        "metadata": {"annotations": both, "labels": {"app": "x"}, "ownerReferences": _OWNERS},
        "spec": {"minMember": 1},
        "status": {"phase": "Running"},
    }


def _node(text: str) -> dict[str, Any]:
    keys = ("product-serial-number", "superPodID", "serverIndex", "baseDeviceInfos", "rackID")
    return {
        "name": BAD,
        "labels": {"nodeDEnable": "on"},
        "annotations": dict.fromkeys(keys, text),
        "status": {
            "conditions": [{"type": "Ready", "status": text[:20]}],
            "addresses": [{"type": "InternalIP", "address": text[:40]}],
        },
    }


def _public(text: str) -> dict[str, Any]:
    label = ("mc-consumer-publicfault", "true")
    return _config_map("default", "public", {"PublicFault": text}, label)


def _lease(text: str) -> dict[str, Any]:
    """Return a heartbeat; what is not a time the API server would refuse."""
    annotations = {"npu-vigil/node": BAD, "npu-vigil/interval-seconds": text}
    metadata = {"labels": {"npu-vigil/heartbeat": "true"}, "annotations": annotations}
    spec = {"holderIdentity": text, "renewTime": "2026-01-02T03:04:05.000000Z"}
    return {"namespace": "mindx-dl", "name": f"npu-vigil-{BAD}", "metadata": metadata, "spec": spec}


def _own(name: str, text: str, key: str | None = None) -> dict[str, Any]:
    label = ("mx-consumer-volcano", "true")
    return _config_map("mindx-dl", name, {key or name: text}, label)


_OWNERS = [
    {
        "apiVersion": "mindxdl.gitee.com/v1",
        "kind": "AscendJob",
        "name": "bad",
        "uid": "11111111-1111-4111-8111-111111111111",
        "controller": True,
    }
]
_FAULT = {
    "faultId": "fault-0001",
    "faultType": "NPU",
    "faultCode": "220001001",
    "faultTime": 1_760_000_100_000,
    "assertion": "occur",
    "faultLocation": {"rack": "1"},
    "influence": [{"nodeName": BAD, "deviceIds": [0, 1]}],
    "description": "a link is down",
}
_MESSAGE: dict[str, Any] = {
    "id": "message-0001",
    "timestamp": 1_760_000_100_000,
    "version": "1.0",
    "resource": "CCAE",
    "faults": [_FAULT],
}
_POLICY = (
    "enabled: true\nseparate:\n  fault_window_hours: 24\n  fault_threshold: 3\n"
    "release:\n  fault_free_hours: 48\n"
)
_RANKS = {
    "pod_name": BAD,
    "server_id": "10.0.0.9",
    "host_ip": "10.0.0.9",
    "devices": [{"device_id": "0", "device_ip": "10.1.0.1", "super_device_id": "7"}],
}
_RANKS_KEY = "ascend.kubectl.kubernetes.io/ascend-910-configuration"
_FAULTS = [fault(3, "RestartNPU", "80C98000"), fault(4, "PreSeparateNPU", "80E21007")]


def _of_bad(example: str, key: str = "output") -> str:
    return EXAMPLES[example][key].replace("node1", BAD)


class _Input(NamedTuple):
    """How a text becomes an object; ``mark`` is in the good text and in no other."""

    mark: str
    do: str
    made: Callable[[str], dict[str, Any]]
    good: str
    read_back: bool = False


_INPUTS = (
    _Input(
        "DeviceInfo",
        "put-configmap",
        partial(_device, "DeviceInfoCfg"),
        config(_FAULTS, unhealthy=(3,))["DeviceInfoCfg"],
    ),
    _Input(
        "AlarmRaisedTime",
        "put-configmap",
        partial(_device, "SwitchInfoCfg"),
        _SWITCH["SwitchInfoCfg"],
    ),
    _Input("FaultDevList", "put-configmap", _server, EXAMPLES["E15"]["input"]),
    _Input("influence", "put-configmap", _public, go_json.encode(_MESSAGE)),
    _Input("device_ip", "put-pod", partial(_pod, _RANKS_KEY), json.dumps(_RANKS)),
    _Input("1,Asc", "put-pod", partial(_pod, "huawei.com/AscendReal"), "Ascend910-1,Ascend910-2"),
    _Input(":60", "put-podgroup", _group, "80C98000:120,[0x08520003,na,L2,na]:5,Separate:60"),
    _Input("SN-", "put-node", _node, "SN-0123"),
    _Input("0.5", "put-lease", _lease, "0.5"),
    _Input(
        "fault_window_hours",
        "put-configmap",
        lambda text: _config_map(
            "cluster-system", "clusterd-config-cm", {"manually_separate_policy.conf": text}, None
        ),
        _POLICY,
    ),
    _Input(
        "LastSeparateTime",
        "edit-output",
        lambda text: _config_map("cluster-system", "clusterd-manual-info-cm", {BAD: text}, None),
        EXAMPLES["E27"]["manual"],
        read_back=True,
    ),
    _Input(
        "devIds",
        "edit-output",
        lambda text: _config_map(
            "cluster-system",
            "statistic-fault-info",
            {"PublicFaults": text, "FaultNum": '{"publicFaultNum":1}'},
            ("mc-statistic-fault", "true"),
        ),
        _of_bad("E20", "statistic"),
        read_back=True,
    ),
    *(
        _Input(mark, "edit-output", partial(_own, name), _of_bad(example), read_back=True)
        for mark, name, example in zip(
            ("deviceinfo-b", "switchinfo-b", "nodeinfo-b"),
            _OUTPUTS,
            ("E3", "E17", "E15"),
            strict=True,
        )
    ),
)


def _input_of(text: str) -> _Input:
    """Return what the text was made from; where that cannot be seen any more, any input."""
    marked = (one for one in reversed(_INPUTS) if one.mark in text)
    other = _INPUTS[crc32(text.encode("utf-8", "replace")) % len(_INPUTS)]
    return next(marked, other)


def _signed(text: str) -> str:
    """Mostly with the right check code, or little else would be read."""
    if crc32(text.encode("utf-8", "replace")) % 4 == 0:
        return text
    for inner in ("DeviceInfo", "NodeInfo"):
        with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
            outer = json.loads(text)
            outer["CheckCode"] = go_json.check_code(outer[inner])
            return json.dumps(outer)
    return text


class AggregatorInputs:
    """See ``Target``."""

    name = "aggregator-input"

    def __init__(self) -> None:
        self.seeds = [one.good for one in _INPUTS]
        self._loop = looptime.new_event_loop(resolution=2**-20)
        self._place = tempfile.TemporaryDirectory(prefix="npu-vigil-fuzz-")
        self._site: Cluster | None = None
        self._fed = 0
        self._steady: dict[str, bytes] = {}
        atexit.register(self._close)

    def feed(self, text: str) -> None:
        """See ``Target``. What changes nothing of what is published is a refused input."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise VigilError("no API server would take it") from error
        try:
            changed = self._loop.run_until_complete(self._feed(text))
        except BaseException:
            self._end()
            raise
        if not changed and text not in self.seeds:
            raise VigilError("changes nothing")

    async def _feed(self, text: str) -> bool:
        site = self._site
        if site is None:
            site = self._site = Cluster(Path(self._place.name))
            with site.replaced():
                await self._begin(site)
        one = _input_of(text)
        step = {"do": one.do, "object": one.made(_signed(text))}
        before = self._pieces(site, BAD)
        with site.replaced():
            if one.read_back:
                await site.kill()
                await site.do(step)
                site.start()
                await site.pass_time(_START_SECONDS)
            else:
                await site.do(step)
                await site.pass_time(_SOON)
            assert self._pieces(site, STEADY) == self._steady, "another node changed"
            changed = self._pieces(site, BAD) != before
            self._fed += 1
            if self._fed % _EVERY == 0:
                await self._go_on(site)
        return changed

    async def _begin(self, site: Cluster) -> None:
        site.start()
        for node in (STEADY, CHANGING):
            await site.device(node, broken(2) | _SWITCH)
            await site.server(node, node_data(None, "UnHealthy"))
        await site.pass_time(1)
        self._steady = self._pieces(site, STEADY)
        assert len(self._steady) == len(_OUTPUTS)

    async def _go_on(self, site: Cluster) -> None:
        """Check that good documents are published, of another node and of this one."""
        chip = self._fed // _EVERY % 8
        update_time = site.wall_ms // 1000
        for node in (CHANGING, BAD):
            await site.device(node, broken(chip, update_time=update_time))
        await site.pass_time(_PACE_SECONDS)
        assert site.unhealthy(CHANGING) == f"Ascend910-{chip}", "a change is not published"
        assert f"Ascend910-{chip}" in site.unhealthy(BAD), "the first good one does not count"

    @staticmethod
    def _pieces(site: Cluster, node: str) -> dict[str, bytes]:
        """Return what is published of a node, by document."""
        return {
            name: bytes(piece)
            for name in _OUTPUTS
            for key, piece in _Raws.decode(site.outputs[name][name] or "{}").items()
            if key.endswith(f"info-{node}")
        }

    def _end(self) -> None:
        """Remove what is wrong, so that the next input does not have it."""
        site, self._site = self._site, None
        if site is not None:
            with suppress(BaseException):
                self._loop.run_until_complete(site.close())

    def _close(self) -> None:
        self._end()
        self._loop.close()
        self._place.cleanup()
