"""The last writer of a ConfigMap, read from a real API server."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from stores.base import Document
from stores.kubernetes_api.writers import ManagedFields, newest_writer
from tests.parts.deadlines import patience, stays

if TYPE_CHECKING:
    from stores.base import Store
    from tests.parts.controlplane import ControlPlane

CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"
ONE = f"{CONFIG_MAPS}/one"


def write(plane: ControlPlane, manager: str, text: str, key: str = "text") -> None:
    """Set one value of the document under the name of ``manager``."""
    plane.request("PATCH", f"{ONE}?fieldManager={manager}", {"data": {key: text}})


@pytest.mark.apiserver
async def test_the_program_that_changed_data_last(
    control_plane: ControlPlane, kubernetes: Store
) -> None:
    await kubernetes.put(Document("kube-system", "one", {"text": "ours"}))
    writer = await kubernetes.writer("kube-system", "one")
    assert writer is not None
    assert writer.name == "npu-vigil"
    assert abs(writer.at_ms / 1000 - time.time()) < patience(3)
    await stays(1.1, because="the server keeps whole seconds")
    write(control_plane, "device-plugin", "theirs")
    first = await kubernetes.writer("kube-system", "one")
    assert first is not None
    assert first.name == "device-plugin"
    # Neither people nor touches count, and a touch does not make the document ours.
    await stays(1.1, because="the server keeps whole seconds")
    write(control_plane, "kubectl-edit", "x", "ManuallySeparateNPU")
    await kubernetes.touch("kube-system", "one")
    assert await kubernetes.writer("kube-system", "one") == first
    await kubernetes.put(Document("kube-system", "one", {"text": "ours again"}))
    writer = await kubernetes.writer("kube-system", "one")
    assert writer is not None
    assert writer.name == "npu-vigil"


@pytest.mark.apiserver
async def test_last_other_writer_of_a_document(
    control_plane: ControlPlane, kubernetes: Store
) -> None:
    await kubernetes.put(Document("kube-system", "one", {"text": "ours"}))
    assert await kubernetes.other_writer("kube-system", "one") is None
    assert await kubernetes.other_writer("kube-system", "two") is None
    labelled = {"metadata": {"labels": {"team": "a"}}}
    control_plane.request("PATCH", f"{ONE}?fieldManager=kubectl-label", labelled)
    other = await kubernetes.other_writer("kube-system", "one")
    assert other is not None
    assert other.name == "kubectl-label"
    write(control_plane, "kubectl-edit", "theirs")
    await kubernetes.touch("kube-system", "one")
    other = await kubernetes.other_writer("kube-system", "one")
    assert other is not None
    assert other.name == "kubectl-edit", "who set data comes first"


@pytest.mark.apiserver
@pytest.mark.parametrize("query", ["", "?fieldManager=kubectl-create"])
async def test_a_write_by_hand_has_no_writer(
    control_plane: ControlPlane, kubernetes: Store, query: str
) -> None:
    body = {"metadata": {"name": "one"}, "data": {"text": "x"}}
    control_plane.request("POST", f"{CONFIG_MAPS}{query}", body)
    assert await kubernetes.writer("kube-system", "one") is None


def entry(manager: str, time: str | None, *fields: str) -> ManagedFields:
    return ManagedFields(manager, time, dict.fromkeys(fields))  # type: ignore[arg-type]


def test_the_newest_entry_that_covers_data() -> None:
    found = newest_writer(
        [
            entry("noded", "2027-01-15T08:00:00Z", "f:data"),
            entry("device-plugin", "2027-01-15T09:00:01+01:00", "f:data", "f:metadata"),
            entry("labels-only", "2027-01-15T09:00:00Z", "f:metadata"),
            entry("no-time", None, "f:data"),
            entry("kubectl-patch", "2027-01-15T09:00:00Z", "f:data"),
        ]
    )
    assert found is not None
    assert (found.name, found.at_ms) == ("device-plugin", 1_800_000_001_000)
    assert newest_writer([]) is None
