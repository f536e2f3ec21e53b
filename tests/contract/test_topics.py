"""A document has one topic, which filters match once; and which paths a socket may have."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from contract.names import (
    CLUSTER_LABEL,
    CLUSTER_NAMESPACE,
    DEVICE_INFO_NAMESPACE,
    MAX_SOCKET_PATH_BYTES,
    PUBLIC_FAULT_LABEL,
    PUBLIC_FAULT_NAMESPACE,
    REPORT_LABEL,
    socket_path_problem,
)
from contract.topics import (
    ack_topic,
    beat_topic,
    document_filters,
    document_place,
    document_topic,
    echo_topic,
    events_topic,
    filters_of,
    is_beat_topic,
    node_of,
)

PLACES = {
    ("kube-system", "mindx-dl-deviceinfo-n1"): "vigil/v1/nodes/n1/device-info",
    ("mindx-dl", "mindx-dl-nodeinfo-n1"): "vigil/v1/nodes/n1/node-info",
    (PUBLIC_FAULT_NAMESPACE, "npu-vigil-dpc-fault-n1"): "vigil/v1/nodes/n1/dpc-fault",
    (PUBLIC_FAULT_NAMESPACE, "npu-vigil-dtfs-fault-n1"): "vigil/v1/nodes/n1/dtfs-fault",
    (CLUSTER_NAMESPACE, "cluster-info-device-0"): "vigil/v1/cluster/cluster-info-device-0",
    (CLUSTER_NAMESPACE, "cluster-info-switch-2"): "vigil/v1/cluster/cluster-info-switch-2",
    (CLUSTER_NAMESPACE, "cluster-info-node-cm"): "vigil/v1/cluster/cluster-info-node-cm",
    ("default", "public-fault"): "vigil/v1/config/default/public-fault",
    # The name of a report in another namespace, and without a name of a node.
    ("default", "mindx-dl-deviceinfo-n1"): "vigil/v1/config/default/mindx-dl-deviceinfo-n1",
    ("kube-system", "mindx-dl-deviceinfo-"): "vigil/v1/config/kube-system/mindx-dl-deviceinfo-",
    ("default", "cluster-info-device-0"): "vigil/v1/config/default/cluster-info-device-0",
}


def matches(pattern: str, topic: str) -> bool:
    """Return whether a filter matches, by the rules of MQTT without ``#``."""
    return pattern.count("/") == topic.count("/") and all(
        fnmatchcase(part, "*" if wanted == "+" else wanted)
        for part, wanted in zip(topic.split("/"), pattern.split("/"), strict=True)
    )


@pytest.mark.parametrize(("place", "topic"), PLACES.items())
def test_a_document_has_one_topic_and_filters_that_match_it(
    place: tuple[str, str], topic: str
) -> None:
    assert document_topic(*place) == topic
    assert document_place(topic) == place
    found = filters_of(topic)
    assert found[0] == topic
    assert len(set(found)) == len(found) > 1
    assert all(matches(pattern, topic) for pattern in found)


@pytest.mark.parametrize(
    "topic",
    [
        "vigil/v1/nodes/n1/beat",
        "vigil/v1/nodes/n1/device-info/more",
        "vigil/v1/nodes/N_1/device-info",
        "vigil/v1/cluster/echo",
        "vigil/v1/cluster/cluster-info-device-0/more",
        "vigil/v1/config/kube-system/mindx-dl-deviceinfo-n1",
        "vigil/v1/config/default",
        "vigil/v2/nodes/n1/device-info",
        "",
    ],
)
def test_no_document_lies_at_another_topic(topic: str) -> None:
    assert document_place(topic) is None


def test_a_filter_that_selects_a_document_is_among_those_of_its_topic() -> None:
    for (namespace, name), topic in PLACES.items():
        for where in (namespace, None):
            for which in (name, None):
                selected = document_filters(where, which, None)
                assert len(set(selected)) == len(selected)
                assert any(pattern in filters_of(topic) for pattern in selected), selected


def test_another_topic_has_no_filter_but_itself() -> None:
    assert filters_of("vigil/v1/nodes/n1") == ("vigil/v1/nodes/n1",)


@pytest.mark.parametrize(
    ("namespace", "label", "expected"),
    [
        (
            None,
            REPORT_LABEL,
            ("vigil/v1/nodes/+/device-info", "vigil/v1/nodes/+/node-info", "vigil/v1/config/+/+"),
        ),
        (
            DEVICE_INFO_NAMESPACE,
            REPORT_LABEL,
            ("vigil/v1/nodes/+/device-info", "vigil/v1/config/kube-system/+"),
        ),
        (
            None,
            PUBLIC_FAULT_LABEL,
            ("vigil/v1/nodes/+/dpc-fault", "vigil/v1/nodes/+/dtfs-fault", "vigil/v1/config/+/+"),
        ),
        (None, CLUSTER_LABEL, ("vigil/v1/cluster/+", "vigil/v1/config/+/+")),
        (
            None,
            ("of-others", "true"),
            (
                "vigil/v1/nodes/+/device-info",
                "vigil/v1/nodes/+/node-info",
                "vigil/v1/nodes/+/dpc-fault",
                "vigil/v1/nodes/+/dtfs-fault",
                "vigil/v1/cluster/+",
                "vigil/v1/config/+/+",
            ),
        ),
        ("default", CLUSTER_LABEL, ("vigil/v1/config/default/+",)),
        (CLUSTER_NAMESPACE, REPORT_LABEL, None),
    ],
)
def test_a_label_of_ours_is_looked_for_where_it_can_be(
    namespace: str | None, label: tuple[str, str], expected: tuple[str, ...] | None
) -> None:
    found = document_filters(namespace, None, label)
    if expected is None:
        assert "vigil/v1/cluster/+" not in found
    else:
        assert found == expected
    assert document_filters(namespace, None, label, listed=False) == found[-1:]


def test_a_name_without_a_namespace_is_looked_for_in_all() -> None:
    assert document_filters(None, "mindx-dl-deviceinfo-n1", None) == (
        "vigil/v1/nodes/n1/device-info",
        "vigil/v1/config/+/mindx-dl-deviceinfo-n1",
    )
    assert document_filters(None, "public-fault", None) == ("vigil/v1/config/+/public-fault",)
    assert document_filters("default", "public-fault", None) == (
        "vigil/v1/config/default/public-fault",
    )


def test_topics_of_a_node_name_it() -> None:
    for make, last in (
        (beat_topic, "beat"),
        (events_topic, "events"),
        (ack_topic, "heard"),
        (echo_topic, "echo"),
    ):
        assert make("n1") == f"vigil/v1/nodes/n1/{last}"
        assert node_of(make("n1")) == "n1"
    assert echo_topic(None) == "vigil/v1/cluster/echo"


@pytest.mark.parametrize(
    "topic",
    ["vigil/v1/nodes/n1", "vigil/v1/nodes/n1/beat/more", "vigil/v1/nodes/-/beat", "a/b/c/d/e"],
)
def test_other_topics_are_of_no_node(topic: str) -> None:
    assert node_of(topic) is None
    assert not is_beat_topic(topic)


def test_only_the_beat_of_a_node_is_a_beat() -> None:
    assert is_beat_topic("vigil/v1/nodes/n1/beat")
    assert not is_beat_topic("vigil/v1/nodes/n1/events")


def test_a_path_of_107_bytes_can_be_a_socket_and_a_longer_one_cannot() -> None:
    assert MAX_SOCKET_PATH_BYTES == 107
    assert socket_path_problem("/" + "s" * 106) is None
    assert socket_path_problem("/" + "s" * 107) is not None
    assert socket_path_problem("/" + "é" * 54) is not None
