"""Writing a recording: steps as they come, and what upstream shows after them."""

from __future__ import annotations

from typing import Any

from contract.go import encode as go_json
from contract.names import CLUSTER_LABEL, REPORT_LABEL
from tests.contract.documents.node_documents import config

AT_0 = 1_760_000_500_000
JOB = "11111111-1111-4111-8111-111111111111"

_FIRST_MS, _STEP_MS, _REST_MS, _SEEN_MS = 5000, 10, 4000, 1500
_OWNER = {
    "apiVersion": "mindxdl.gitee.com/v1",
    "kind": "AscendJob",
    "name": "job1",
    "uid": JOB,
    "controller": True,
}


class Script:
    """A recording that is being written; of some, only one output is known."""

    def __init__(self, name: str, only: str | None = None) -> None:
        self._at_ms = 0
        self._name = name
        self._only = only
        self._steps: list[dict[str, Any]] = []
        self._observed: list[dict[str, Any]] = []

    @property
    def recording(self) -> dict[str, Any]:
        """Return the recording with the steps so far."""
        return {
            "name": self._name,
            "unix_ms_at_0": AT_0,
            "only": self._only,
            "steps": self._steps,
            "observed": self._observed,
        }

    @property
    def wall_ms(self) -> int:
        """Return the time of the next step, as Unix epoch milliseconds."""
        return AT_0 + self._at_ms

    def start(self) -> Script:
        """Start the aggregator; the next step follows when it runs."""
        self.do("restart-aggregator")
        self._at_ms += _FIRST_MS
        return self

    def do(self, what: str, **step: Any) -> None:
        """Add one step shortly after the former one."""
        self._steps.append({"at_ms": self._at_ms, "do": what, **step})
        self._at_ms += _STEP_MS

    def device(self, node: str, data: dict[str, str], **step: Any) -> None:
        """Write a device-info, which may have the key of the switch."""
        self._report("kube-system", f"mindx-dl-deviceinfo-{node}", data, **step)

    def switch(self, node: str, text: str) -> None:
        """Write a device-info with this text of its switch."""
        self.device(node, config() | {"SwitchInfoCfg": text})

    def server(self, node: str, data: dict[str, str]) -> None:
        """Write a node-info."""
        self._report("mindx-dl", f"mindx-dl-nodeinfo-{node}", data)

    def node(self, node: str, ip: str = "10.0.0.1") -> None:
        """Write a Node object that is ready."""
        status = {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": ip}],
        }
        annotations = {"product-serial-number": f"SN-{node}"}
        self.do("put-node", object={"name": node, "annotations": annotations, "status": status})

    def pod(self, node: str, chips: str, **annotations: str) -> None:
        """Write a running pod of the job that uses chips."""
        metadata = {
            "annotations": {
                "huawei.com/AscendReal": chips,
                "scheduling.k8s.io/group-name": "pg-job1",
                **annotations,
            },
            "ownerReferences": [_OWNER],
        }
        spec = {"nodeName": node, "containers": [{"name": "c", "image": "x"}]}
        status = {"phase": "Running"}
        named = {"namespace": "default", "name": f"job1-{node}"}
        self.do("put-pod", object=named | {"metadata": metadata, "spec": spec, "status": status})

    def job(self, **annotations: str) -> None:
        """Write the PodGroup of the job."""
        metadata = {"annotations": annotations, "labels": {}, "ownerReferences": [_OWNER]}
        spec = {"minMember": 1, "minResources": {"huawei.com/Ascend910": "8"}}
        named = {"namespace": "default", "name": "pg-job1"}
        status = {"phase": "Running"}
        self.do(
            "put-podgroup", object=named | {"metadata": metadata, "spec": spec, "status": status}
        )

    def public(self, number: int, *faults: dict[str, Any]) -> None:
        """Write a message about public faults, each in a separate ConfigMap."""
        message: dict[str, Any] = {
            "id": f"message-{number:04}",
            "timestamp": 1_760_000_100_000,
            "version": "1.0",
            "resource": "CCAE",
            "faults": list(faults),
        }
        labels = {"mc-consumer-publicfault": "true"}
        data = {"PublicFault": go_json.encode(message)}
        thing = {"namespace": "default", "name": f"public-{number}", "labels": labels, "data": data}
        self.do("put-configmap", object=thing)

    def shows(self, output: str, text: str, *, namespace: str = "mindx-dl") -> None:
        """Record that upstream shows this value now, and nothing else after it."""
        text = text.replace("<now>", str((self.wall_ms + _SEEN_MS) // 1000))
        self.shows_data(output, {output: text}, dict([CLUSTER_LABEL]), namespace=namespace)

    def shows_data(
        self, output: str, data: dict[str, str], labels: dict[str, str], *, namespace: str
    ) -> None:
        """Record that upstream shows these data and labels now."""
        one: dict[str, Any] = {"at_ms": self._at_ms + _SEEN_MS, "namespace": namespace}
        self._observed.append(one | {"name": output, "labels": labels, "data": data})

    def counts(self, nodes: dict[str, int]) -> None:
        """Record that upstream shows documents with so many nodes now."""
        for output, number in nodes.items():
            one: dict[str, Any] = {"at_ms": self._at_ms + _SEEN_MS, "name": output}
            labels = dict([CLUSTER_LABEL])
            self._observed.append(one | {"labels": labels, "summary": {output: {"nodes": number}}})

    def answers(self, client: dict[str, str], message: dict[str, Any]) -> None:
        """Request faults, and record upstream's answer."""
        stream = "fault.Fault/GetFaultMsgSignal"
        seen = {"at_ms": self._at_ms, "stream": stream, "client": client, "message": message}
        self._observed.append(seen)
        self.do("get-fault", object=client)

    def rest(self, milliseconds: int = _REST_MS) -> None:
        """Let time pass so that nothing changes before the next step."""
        self._at_ms += milliseconds

    def _report(self, namespace: str, name: str, data: dict[str, str], **step: Any) -> None:
        labels = dict([REPORT_LABEL])
        thing = {"namespace": namespace, "name": name, "labels": labels, "data": data}
        self.do("put-configmap", object=thing, **step)
