"""What the API server of a kubeconfig answers: rights of its user, and logs of our pods."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from contract.errors import StoreUnavailable, VigilError
from contract.names import AGGREGATOR_NAMESPACE, DEVICE_INFO_NAMESPACE
from vigil.daemon_client import OK

if TYPE_CHECKING:
    from vigil.sources.api_server import ApiServerClient
    from vigil.support.part import PartContents
    from vigil.support.place import SupportPlace

_CREATED = 201
_RULES = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
_PODS = f"/api/v1/namespaces/{AGGREGATOR_NAMESPACE}/pods"
_SELECTOR = quote("app.kubernetes.io/name=npu-vigil", safe="")
_MAX_PODS = 20
_MAX_LOG_BYTES = 1_000_000


class _AggregatorPodMetadata(msgspec.Struct):
    name: str


class _AggregatorPodStatus(msgspec.Struct):
    phase: str = ""


class _AggregatorPod(msgspec.Struct):
    metadata: _AggregatorPodMetadata
    status: _AggregatorPodStatus


class _AggregatorPods(msgspec.Struct):
    items: list[_AggregatorPod]


def add_rules(place: SupportPlace, into: PartContents) -> None:
    """Add what the user may do in the namespaces of our documents."""
    client = _client(place)
    try:
        for namespace in (AGGREGATOR_NAMESPACE, DEVICE_INFO_NAMESPACE):
            review = {
                "kind": "SelfSubjectRulesReview",
                "apiVersion": "authorization.k8s.io/v1",
                "spec": {"namespace": namespace},
            }
            status, body = client.request("POST", _RULES, json.dumps(review).encode())
            if status != _CREATED:
                raise client.refused(_RULES, status, body)
            into.json(f"rights/rules-{namespace}", client.decoded(body, dict).get("status"))
    finally:
        client.close()


def add_pod_logs(place: SupportPlace, into: PartContents) -> None:
    """Add the end of the log of our pods, those that do not run first, at most 20 of them."""
    client = _client(place)
    try:
        path = f"{_PODS}?labelSelector={_SELECTOR}"
        status, body = client.request("GET", path)
        if status != OK:
            raise client.refused(_PODS, status, body)
        pods = client.decoded(body, _AggregatorPods).items
        pods.sort(key=lambda pod: (pod.status.phase == "Running", pod.metadata.name))
        if not pods:
            into.problems.append(f"namespace {AGGREGATOR_NAMESPACE} has no pod of NPU Vigil")
        if len(pods) > _MAX_PODS:
            into.problems.append(f"logs of {_MAX_PODS} of {len(pods)} pods")
        for pod in pods[:_MAX_PODS]:
            _add_log(client, pod.metadata.name, into)
    finally:
        client.close()


def _add_log(client: ApiServerClient, pod: str, into: PartContents) -> None:
    path = f"{_PODS}/{quote(pod, safe='')}/log"
    query = f"?timestamps=true&sinceSeconds=86400&tailLines=10000&limitBytes={_MAX_LOG_BYTES}"
    try:
        status, body = client.request("GET", path + query)
        if status != OK:
            raise client.refused(path, status, body)
        into.text(f"log/{AGGREGATOR_NAMESPACE}.{pod}", body.decode(errors="replace"))
    except VigilError as error:
        into.problems.append(str(error))


def _client(place: SupportPlace) -> ApiServerClient:
    client = place.api_server()
    if client is None:
        raise StoreUnavailable("there is no kubeconfig")
    return client
