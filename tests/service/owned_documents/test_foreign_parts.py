"""What of a document is ours, and what others added to it."""

from __future__ import annotations

import msgspec
import pytest

from contract.names import REPORT_LABEL
from service.owned_documents.foreign_parts import MAX_BYTES, NOTHING, added_by_others, differences
from stores.base import Document, ObjectOwner

NAME = "mindx-dl-deviceinfo-n"
OURS = Document("kube-system", NAME, {"DeviceInfoCfg": "{}"}, dict([REPORT_LABEL]))


def shown(
    labels: dict[str, str], data: dict[str, str], annotations: dict[str, str] | None = None
) -> Document:
    """Return our document with additional labels, data and annotations."""
    return Document(
        OURS.namespace, NAME, OURS.data | data, OURS.labels | labels, annotations or {}, "7"
    )


def test_additions_of_others_are_no_difference_and_kept() -> None:
    found = shown({"team": "a"}, {"note": "x"}, {"audit": "yes", "npu-vigil/touched": "now"})
    assert differences(found, OURS) == ()
    written = added_by_others(found).beside(OURS)
    assert written.labels == OURS.labels | {"team": "a"}
    assert written.data == OURS.data | {"note": "x"}
    assert written.annotations == {"audit": "yes"}, "those of our name are ours"


def test_finalizers_and_existing_owners_are_kept() -> None:
    owners = (
        ObjectOwner("v1", "ConfigMap", "a", "1"),
        ObjectOwner("v1", "ConfigMap", "b", "2"),
    )
    found = msgspec.structs.replace(OURS, finalizers=("example.com/holds",), owners=owners)
    assert differences(found, OURS) == ()
    added = added_by_others(found, missing_owners=frozenset({"2"}))
    written = added.beside(OURS)
    assert written.finalizers == ("example.com/holds",)
    assert written.owners == owners[:1]


def test_a_deleted_document_that_a_finalizer_holds_is_as_good_as_gone() -> None:
    held = msgspec.structs.replace(OURS, finalizers=("example.com/holds",), is_deleting=True)
    assert differences(held, None) == ()
    assert differences(held, OURS) == ()


@pytest.mark.parametrize(
    ("labels", "data", "what"),
    [
        ({"mc-consumer-publicfault": "true"}, {}, "label mc-consumer-publicfault"),
        ({"mx-consumer-volcano": "true"}, {}, "label mx-consumer-volcano"),
        ({"mx-consumer-cim": "false"}, {}, "label mx-consumer-cim"),
        ({"jobID": "a"}, {}, "label jobID"),
        ({"npu-vigil/state": "counts"}, {}, "label npu-vigil/state"),
        ({}, {"SwitchInfoCfg": "{}"}, "key SwitchInfoCfg"),
        ({}, {"ManuallySeparateNPU": ""}, "key ManuallySeparateNPU"),
        ({}, {"PublicFault": ""}, "key PublicFault"),
        ({}, {"DeviceInfoCfg": ""}, "key DeviceInfoCfg"),
        ({}, {NAME: ""}, f"key {NAME}"),
    ],
)
def test_keys_that_readers_act_on_are_ours(
    labels: dict[str, str], data: dict[str, str], what: str
) -> None:
    found = shown(labels, data)
    assert differences(found, OURS) == (what,)
    assert added_by_others(found) is NOTHING


def test_missing_keys_and_immutability_are_differences() -> None:
    bare = Document(OURS.namespace, NAME, {}, {}, immutable=True)
    expected = ("immutable", "label mx-consumer-cim", "key DeviceInfoCfg")
    assert differences(bare, OURS) == expected
    assert differences(None, OURS) == differences(OURS, None) == ("the whole document",)
    assert differences(None, None) == ()


def test_of_a_view_all_keys_are_ours() -> None:
    found = shown({"team": "a"}, {"note": "x"})
    assert differences(found, OURS, all_keys=True) == ("key note",)
    assert added_by_others(found, all_keys=True).beside(OURS).data == OURS.data


def test_ours_has_room_whatever_others_add() -> None:
    found = shown({"team": "a"}, {"huge": "x" * MAX_BYTES, "small": "y"})
    added = added_by_others(found)
    assert added.left_out == ("key huge",)
    assert added.beside(OURS).data == OURS.data | {"small": "y"}


def test_where_nothing_was_added_nothing_is_copied() -> None:
    assert added_by_others(OURS) is NOTHING
    assert NOTHING.beside(OURS) is OURS
