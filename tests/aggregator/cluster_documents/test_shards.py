"""Nodes keep their shard, shards keep their size, no node is ever absent."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.cluster_documents.shards import FILL, ShardedDocument, Value, text_limit
from contract.documents.cluster_device import render_device_entry
from contract.documents.cluster_info import VALUE_LIMIT
from contract.names import device_info_name
from stores.base import Document
from stores.mqtt.documents import encode
from tests.aggregator.nodes import T0, healthy, published, record

TEXT = render_device_entry("node-0000", record(healthy()), T0)


def entry_of(size: int) -> str:
    """Return a JSON text of this many bytes, two bytes a character."""
    filler = "é" * ((size - 2) // 2) + "x" * (size % 2)
    return json.dumps(filler, ensure_ascii=False)


def nodes_in(value: Value) -> set[str]:
    return set(published(value.text))


def acknowledge_all(shards: ShardedDocument) -> None:
    """Acknowledge the write of every document until none changes any more."""
    changed: frozenset[int] = frozenset(shards.indices)
    while changed:
        now, changed = changed, frozenset()
        for index in sorted(now):
            changed |= shards.acknowledged(index, shards.value(index).revision)


def check(shards: ShardedDocument, nodes: set[str]) -> None:
    """Check the invariants of the shards."""
    held = [nodes_in(shards.value(index)) for index in shards.indices]
    assert set().union(*held) == nodes
    for index, members in zip(shards.indices, held, strict=True):
        value = shards.value(index)
        assert value.nodes == len(members)
        assert list(published(value.text)) == sorted(members)
        assert len(value.text.encode()) <= VALUE_LIMIT or len(members) == 1


def full() -> ShardedDocument:
    """Return a document that an earlier run may have left, without room for ``b`` to grow."""
    shards = ShardedDocument(device_info_name)
    shards.restore_document(0, {"a": entry_of(750_000), "b": entry_of(50_000)})
    return shards


def test_e32_three_thousand_nodes_are_small_shards() -> None:
    shards = ShardedDocument(device_info_name)
    nodes = {f"node-{number:04}" for number in range(3000)}
    for node in sorted(nodes):
        shards.put(node, TEXT)
    assert shards.indices == tuple(range(10))
    assert all(len(shards.value(index).text) <= FILL for index in shards.indices)
    check(shards, nodes)


def test_the_first_node_that_does_not_fit_opens_a_shard() -> None:
    shards = ShardedDocument(device_info_name)
    shards.put("a", entry_of(100_000))
    shards.put("b", entry_of(50_000))
    shards.put("c", entry_of(1000))
    assert [shards.home(node) for node in "abc"] == [0, 1, 0]


def test_a_node_keeps_its_shard_while_it_fits() -> None:
    shards = ShardedDocument(device_info_name)
    shards.put("a", entry_of(1000))
    shards.put("b", entry_of(1000))
    assert shards.put("a", entry_of(500_000)) == {0}
    assert shards.put("b", entry_of(300_000)) == {0}
    check(shards, {"a", "b"})


def test_a_node_that_grows_is_in_the_new_shard_before_it_leaves_the_old_one() -> None:
    shards = full()
    small, big = entry_of(50_000), entry_of(100_000)
    before = shards.value(0).revision
    assert shards.put("b", big) == {1}
    assert shards.value(0).revision == before
    assert published(shards.value(0).text)["b"] == json.loads(small)
    assert published(shards.value(1).text)["b"] == json.loads(big)
    moved = shards.value(1).revision
    assert shards.acknowledged(1, moved - 1) == frozenset()
    assert nodes_in(shards.value(0)) == {"a", "b"}
    assert shards.acknowledged(1, moved) == {0}
    assert nodes_in(shards.value(0)) == {"a"}
    check(shards, {"a", "b"})


def test_a_node_that_goes_while_it_moves_is_in_neither() -> None:
    shards = full()
    shards.put("b", entry_of(100_000))
    assert shards.drop("b") == {0, 1}
    assert shards.value(1) == Value("", 0, shards.revision(1))
    check(shards, {"a"})


def test_a_node_that_moves_back_while_it_moves_stays() -> None:
    shards = full()
    shards.put("b", entry_of(100_000))
    shards.put("c", entry_of(20_000))
    assert (shards.home("b"), shards.home("c")) == (1, 1)
    shards.put("c", entry_of(700_000))
    shards.drop("a")
    assert shards.put("b", entry_of(125_000)) == {0}
    acknowledge_all(shards)
    assert shards.home("b") == 0
    check(shards, {"b", "c"})


@pytest.mark.slow
def test_shards_of_another_size_keep_their_nodes() -> None:
    # As upstream fills them, and as an operator may have made them: no node moves, new ones go on.
    nodes = [f"node-{number:04}" for number in range(2100)]
    shards = ShardedDocument(device_info_name)
    shards.restore_document(0, dict.fromkeys(nodes[:1850], TEXT))
    shards.restore_document(1, dict.fromkeys(nodes[1850:2000], TEXT))
    before = {node: shards.home(node) for node in nodes[:2000]}
    for node in nodes:
        shards.put(node, TEXT.replace("Ascend910-3", "Ascend910-4"))
    assert {node: shards.home(node) for node in nodes[:2000]} == before
    assert {shards.home(node) for node in nodes[2000:]} == {1}
    assert len(shards.value(0).text) > 6 * FILL
    check(shards, set(nodes))


def test_one_entry_larger_than_a_shard_is_alone() -> None:
    shards = ShardedDocument(device_info_name)
    shards.put("a", entry_of(1000))
    shards.put("b", entry_of(VALUE_LIMIT + 1))
    shards.put("c", entry_of(1000))
    check(shards, {"a", "b", "c"})


def test_an_emptied_shard_stays_and_is_empty() -> None:
    shards = ShardedDocument(device_info_name)
    shards.put("a", TEXT)
    assert shards.drop("a") == {0}
    assert shards.drop("a") == frozenset()
    assert shards.indices == (0,)
    assert shards.value(0).text == ""


def test_after_a_restart_everything_is_where_it_was() -> None:
    shards = ShardedDocument(device_info_name)
    shards.restore_document(3, {"a": TEXT, "b": TEXT})
    shards.restore_document(1, {})
    assert shards.indices == (1, 3)
    assert shards.value(3).revision == 0
    assert shards.put("b", TEXT) == {3}
    assert shards.put("c", TEXT) == {0}
    check(shards, {"a", "b", "c"})


def test_a_surplus_shard_is_used_only_when_those_before_it_are_full() -> None:
    shards = ShardedDocument(device_info_name)
    shards.restore_document(2, {})
    for node in "abcd":
        shards.put(node, entry_of(700_000))
    assert [shards.home(node) for node in "abcd"] == [0, 1, 2, 3]


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.one_of(st.none(), st.integers(20_000, 90_000))),
        max_size=40,
    )
)
def test_a_new_node_is_in_the_first_shard_that_has_room(
    changes: list[tuple[int, int | None]],
) -> None:
    shards = ShardedDocument(device_info_name)
    there: dict[str, str] = {}
    for number, size in changes:
        node = f"n{number}"
        if size is None:
            shards.drop(node)
            there.pop(node, None)
            continue
        text = entry_of(size)
        is_new = node not in there
        used = [len(shards.value(index).text.encode()) for index in shards.indices]
        shards.put(node, text)
        there[node] = text
        added = len(f',"{device_info_name(node)}":{text}'.encode())
        if is_new:
            first = (
                index
                for index, before in enumerate(used)
                if before in (0, 2) or before + added <= FILL
            )
            assert shards.home(node) == next(first, len(used))


_CHANGES = st.lists(
    st.tuples(
        st.sampled_from("abcdef"),
        st.one_of(st.none(), st.integers(2, 500_000)),
        st.booleans(),
    ),
    max_size=40,
)


@given(_CHANGES)
def test_shards_hold_every_node_and_fit_after_any_changes(
    changes: list[tuple[str, int | None, bool]],
) -> None:
    shards = ShardedDocument(device_info_name)
    there: dict[str, str] = {}
    for node, size, acknowledged in changes:
        if size is None:
            shards.drop(node)
            there.pop(node, None)
        else:
            there[node] = entry_of(size)
            shards.put(node, there[node])
        check(shards, set(there))
        if acknowledged:
            acknowledge_all(shards)
    acknowledge_all(shards)
    held = [published(shards.value(index).text) for index in shards.indices]
    assert sum(len(members) for members in held) == len(there)
    for members in held:
        for node, found in members.items():
            assert found == json.loads(there[node])


@given(
    st.lists(st.integers(50, 6000), min_size=1, max_size=40),
    st.lists(st.sampled_from([3_000, 8_000, 30_000, VALUE_LIMIT]), min_size=1, max_size=4),
)
def test_documents_keep_to_what_a_store_takes_and_no_document_is_absent(
    sizes: list[int], limits: list[int]
) -> None:
    shards = ShardedDocument(device_info_name)
    nodes = {f"node-{number:04}": entry_of(size) for number, size in enumerate(sizes)}
    for node, text in nodes.items():
        shards.put(node, text)
    acknowledge_all(shards)
    for limit in limits:
        shards.fit(limit)
        held = [nodes_in(shards.value(index)) for index in shards.indices]
        assert set().union(*held) == nodes.keys()
        acknowledge_all(shards)
        check(shards, set(nodes))
        for index in shards.indices:
            value = shards.value(index)
            assert len(value.text.encode()) <= limit or value.nodes == 1
        assert shards.fit(limit) == frozenset()


def test_a_text_fits_into_a_document_of_a_limited_size() -> None:
    for largest in (10_000, 100_000, 1_000_000):
        for worst in '"\\':
            text = worst * text_limit(largest)
            name = "cluster-info-device-0"
            document = Document("mindx-dl", name, {name: text}, {"mx-consumer-volcano": "true"})
            assert largest // 2 < len(encode(document)) <= largest
