"""The two documents of operators: policy and list, read, refused, shown; release both ways."""

from __future__ import annotations

import json
import logging

import pytest

from aggregator.plugin import View
from aggregator.processors.frequent_fault_separation import (
    ManualSeparation,
    Separated,
    SeparationPolicy,
)
from aggregator.processors.separation_documents import (
    CHIPS_NAME,
    NAMESPACE,
    POLICY_KEY,
    POLICY_NAME,
    SeparationDocuments,
    read_chips,
    read_policy,
    rendered,
)
from aggregator.processors.state_types import Occurrence
from contract.documents.cluster_info import VALUE_LIMIT
from contract.errors import DocumentError
from stores.base import Changed, Deleted, Document, DocumentsListed, WatchEvent
from stores.interruption import Interrupted
from tests.aggregator.processors.cases import SHIPPED_POLICY, T, chip, policy_text


def test_the_shipped_policy() -> None:
    assert read_policy({POLICY_KEY: SHIPPED_POLICY}) == SeparationPolicy(True, 24, 3, 48)
    assert not SeparationPolicy().enabled, "off until a document says otherwise"


@pytest.mark.parametrize(
    "given", [(1, 1, 1), (720, 50, 240), (1, 50, -1)], ids=["least", "most", "never"]
)
def test_bounds_that_are_right(given: tuple[int, int, int]) -> None:
    assert read_policy({POLICY_KEY: policy_text("false", *given)}) == SeparationPolicy(
        False, *given
    )


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        (policy_text(window=0), "separate.fault_window_hours"),
        (policy_text(window=721), "separate.fault_window_hours"),
        (policy_text(threshold=0), "separate.fault_threshold"),
        (policy_text(threshold=51), "separate.fault_threshold"),
        (policy_text(free=0), "release.fault_free_hours"),
        (policy_text(free=-2), "release.fault_free_hours"),
        (policy_text(free=241), "release.fault_free_hours"),
        (policy_text(window="true"), "separate.fault_window_hours"),
        (policy_text(window="24.0"), "separate.fault_window_hours"),
        (policy_text(window="'24'"), "separate.fault_window_hours"),
        (policy_text(enabled="1"), "enabled"),
        ("enabled: true", "separate.fault_window_hours|release.fault_free_hours"),
        ("separate: []", "separate"),
        ("[]", ""),
        ("a: [", ""),
        ("&a [*a]", ""),
        ("\x00", ""),
        ("", "separate.fault_window_hours|release.fault_free_hours"),
        ("[" * 5000, ""),
        ("enabled: !!bool maybe", ""),
        ("enabled: !!timestamp soon", ""),
        ("enabled: !!int ''", ""),
        (f"enabled: {'1:' * 300}1.5", ""),
        ("a" * 20_000, ""),
    ],
)
def test_a_policy_that_is_refused(wrong: str, where: str) -> None:
    with pytest.raises(DocumentError) as refused:
        read_policy({POLICY_KEY: wrong})
    assert refused.value.where in [
        f"{POLICY_KEY}.{one}" if one else POLICY_KEY for one in where.split("|")
    ]


def test_a_policy_without_its_key_is_refused() -> None:
    with pytest.raises(DocumentError):
        read_policy({})


class Bench:
    """The documents of some stores, and what follows from them."""

    def __init__(self, stores: int = 1) -> None:
        self.separation = ManualSeparation()
        self.documents = SeparationDocuments(self.separation, stores)

    def policy(self, texts: str | None, source: int = 0) -> frozenset[str]:
        data = None if texts is None else {POLICY_KEY: texts}
        return self._apply(POLICY_NAME, data, source)

    def chips(self, data: dict[str, str] | None, source: int = 0) -> frozenset[str]:
        return self._apply(CHIPS_NAME, data, source)

    def listed(self, data: dict[str, str] | None = None, source: int = 0) -> frozenset[str]:
        documents = () if data is None else (Document(NAMESPACE, CHIPS_NAME, data),)
        return self.see(CHIPS_NAME, DocumentsListed(documents), source)

    def _apply(self, name: str, data: dict[str, str] | None, source: int) -> frozenset[str]:
        if data is None:
            return self.see(name, Deleted(NAMESPACE, name), source)
        return self.see(name, Changed(Document(NAMESPACE, name, data)), source)

    def see(self, name: str, event: WatchEvent, source: int = 0) -> frozenset[str]:
        selection = next(one for one in self.documents.inputs if one.name == name)
        return self.documents.observe_document(source, selection, event, T + 1000)

    def separate(self, *nodes: str, number: int = 0) -> None:
        for node in nodes:
            self.separation.count(Occurrence(T + n, node, chip(number), "A", "j") for n in range(3))

    def shown(self) -> dict[str, str]:
        """Return the view."""
        (view,) = self.documents.views()
        return view.data or {}


def on() -> Bench:
    bench = Bench()
    bench.policy(SHIPPED_POLICY)
    bench.listed()
    return bench


def test_a_good_policy_is_not_replaced_by_a_bad_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bench = on()
    for wrong in (policy_text(window=0), policy_text(window=0), policy_text(window=0)):
        assert bench.policy(wrong) == frozenset()
    assert bench.separation.policy == SeparationPolicy(True)
    assert len(caplog.records) == 1
    bench.policy(policy_text(threshold=5))
    assert bench.separation.policy.threshold == 5
    assert len(caplog.records) == 2
    bench.policy(None)
    assert bench.separation.policy.threshold == 5, "who deletes it has not turned it off"


def test_the_first_store_that_has_a_policy_rules() -> None:
    bench = Bench(stores=2)
    bench.policy(policy_text(threshold=5), source=1)
    bench.policy(policy_text(threshold=7), source=0)
    bench.policy(policy_text(threshold=6), source=1)
    assert bench.separation.policy.threshold == 7
    bench.policy(None, source=0)
    assert bench.separation.policy.threshold == 6


def test_switched_off_everything_is_released_and_the_document_goes() -> None:
    bench = on()
    bench.separate("n1")
    assert set(bench.shown()) == {"n1"}
    assert bench.policy(policy_text("false")) == {"n1"}
    assert bench.documents.views() == (View(NAMESPACE, CHIPS_NAME, None),)


def test_an_operator_releases_a_chip_by_deleting_it() -> None:
    bench = on()
    bench.separate("n1", "n2")
    bench.separate("n1", number=1)
    bench.separation.count([Occurrence(T, "n1", chip(1), "B", "j")])
    both = bench.shown()
    assert bench.chips(both) == frozenset()
    assert bench.chips(
        {"n1": both["n1"].replace('"Total":["Ascend910-0",', '"Total":['), "n2": both["n2"]}
    ) == {"n1"}
    assert bench.separation.of("n1") == {chip(1)}
    assert bench.separation.of("n2") == {chip(0)}
    assert "n1" in bench.separation.counts, "of other chips nothing is forgotten"


def test_an_operator_releases_a_node_by_deleting_its_key_and_all_by_the_document() -> None:
    bench = on()
    bench.separate("n1", "n2", "n3")
    everything = bench.shown()
    bench.chips(everything)
    assert bench.chips({node: texts for node, texts in everything.items() if node != "n2"}) == {
        "n2"
    }
    assert bench.chips(None) == {"n1", "n3"}
    assert bench.separation.chips == {}
    assert bench.documents.views()[0].data is None


def test_counters_of_a_released_chip_begin_anew() -> None:
    bench = on()
    bench.separate("n1")
    bench.chips(bench.shown())
    bench.separation.count([Occurrence(T, "n1", chip(0), "B", "j")] * 2)
    bench.chips(None)
    assert bench.separation.counts == {}


def test_a_chip_that_was_never_in_the_document_is_not_released() -> None:
    bench = on()
    bench.separate("n1")
    before = bench.shown()
    bench.chips(before)
    bench.separate("n2")
    assert bench.chips(before) == frozenset(), "our write comes later"
    assert bench.chips(None) == {"n1"}
    assert bench.separation.of("n2") == {chip(0)}


def test_a_value_that_cannot_be_read_releases_no_chip(caplog: pytest.LogCaptureFixture) -> None:
    bench = on()
    bench.separate("n1", "n2")
    texts = bench.shown()
    bench.chips(texts)
    for _ in range(3):
        assert bench.chips({"n1": "{oops", "n2": texts["n2"]}) == frozenset()
    assert bench.separation.of("n1") == {chip(0)}
    assert list(bench.documents.problems) == [(0, "n1")]
    bench.documents.follow_up(is_news=True)
    assert bench.separation.of("n1") == {chip(0)}
    assert len(caplog.records) == 1
    assert bench.shown() == texts, "and it is repaired"
    bench.chips(texts)
    assert bench.documents.problems == {}


@pytest.mark.parametrize(("after_ms", "is_separated"), [(0, False), (1, True)])
def test_a_chip_that_left_when_it_was_separated_was_released(
    after_ms: int, is_separated: bool
) -> None:
    bench = on()
    bench.separate("n1")
    bench.chips(bench.shown())
    left_ms = T + 1000
    bench.chips(None)
    # The kept state of the earlier leader has the chip, separated at or after that time.
    bench.separation.chips = {"n1": {chip(0): Separated({"A": left_ms + after_ms})}}
    bench.documents.follow_up(is_news=True)
    assert bool(bench.separation.of("n1")) is is_separated


def test_separations_by_another_program_are_adopted_at_the_start_only() -> None:
    before = on()
    before.separate("n1")
    texts = before.shown()
    bench = Bench()
    bench.policy(SHIPPED_POLICY)
    assert bench.documents.views() == ()
    assert bench.listed(texts) == {"n1"}
    assert bench.separation.of("n1") == {chip(0)}
    assert bench.shown() == texts
    assert bench.chips({**texts, "n9": texts["n1"]}) == frozenset()
    bench.see(CHIPS_NAME, Interrupted("away"))
    assert bench.listed({**texts, "n9": texts["n1"]}) == frozenset()
    assert set(bench.separation.chips) == {"n1"}
    assert bench.listed() == {"n1"}, "released while no store answered"


def test_in_whatever_order_policy_and_list_come() -> None:
    before = on()
    before.separate("n1")
    texts = before.shown()
    for first_policy in (True, False):
        bench = Bench()
        if first_policy:
            bench.policy(policy_text("false"))
        bench.listed(texts)
        if not first_policy:
            assert bench.separation.of("n1") == frozenset(), "not before a policy says so"
            assert bench.shown() == texts
            bench.policy(policy_text("false"))
        assert bench.separation.chips == {}


def test_another_store_without_the_document_releases_no_chip() -> None:
    bench = Bench(stores=2)
    bench.policy(SHIPPED_POLICY)
    bench.listed(source=0)
    bench.separate("n1")
    assert bench.documents.views() == (), "the second store may know more"
    bench.listed(source=1)
    listed_of = [bench.documents.listed]
    for source in range(2):
        bench.see(POLICY_NAME, DocumentsListed(()), source)
        listed_of.append(bench.documents.listed)
    assert listed_of == [False, False, True]
    texts = bench.shown()
    bench.chips(texts, source=0)
    assert bench.chips({}, source=1) == frozenset()
    bench.chips(texts, source=1)
    assert bench.separation.chips["n1"][chip(0)].shown == (0, 1)
    assert bench.chips({}, source=1) == {"n1"}


def test_a_store_that_is_away_keeps_the_list_back_for_a_while_only() -> None:
    separation = ManualSeparation()
    separation.chips = {"n1": {chip(3): Separated({"80C98000": T})}}
    documents = SeparationDocuments(separation, 2)
    policies, chips = documents.inputs
    documents.advance(0)
    documents.observe_document(0, policies, DocumentsListed(()), T)
    documents.observe_document(0, chips, DocumentsListed(()), T)
    documents.advance(29_999)
    assert documents.views() == ()
    documents.advance(30_000)
    assert len(documents.views()) == 1


def test_no_list_is_shown_before_a_store_has_answered() -> None:
    documents = SeparationDocuments(ManualSeparation(), 2)
    documents.advance(0)
    documents.advance(30_000)
    assert documents.views() == ()


def test_other_documents_are_nobodys() -> None:
    bench = on()
    bench.separate("n1")
    bench.chips(bench.shown())
    bench.see(CHIPS_NAME, Deleted(NAMESPACE, "another"))
    bench.see(CHIPS_NAME, Changed(Document(NAMESPACE, "another", {})))
    assert bench.separation.of("n1") == {chip(0)}


def test_separated_chips_are_read_from_the_value_of_a_node() -> None:
    texts = {"Total": ["a", "b"], "Detail": {"a": None, "b": [], "c": []}}
    assert read_chips("n", json.dumps(texts)) == {"a": {}, "b": {}}
    silent = {"FaultCode": "1", "FaultLevel": "SilentFault", "LastSeparateTime": 1}
    own = {"FaultCode": "2", "FaultLevel": "ManuallySeparateNPU", "LastSeparateTime": 2}
    detail = {"a": [silent], "b": [silent, own]}
    assert read_chips("n", json.dumps({"Total": ["a", "b"], "Detail": detail})) == {"b": {"2": 2}}
    assert read_chips("n", "{}") == {}


def test_a_list_that_is_too_long_keeps_what_was_shown() -> None:
    code = {"A" * 200: T}
    one = {chip(number): Separated(code) for number in range(16)}
    shown = {name: Separated(code, (0,)) for name in one}
    nodes = {f"n{number:04}": shown if number > 150 else one for number in range(300)}
    data = rendered(nodes)
    assert len(data) < 300
    assert sum(len(name) + len(texts) for name, texts in data.items()) <= VALUE_LIMIT
    assert list(data) == sorted(data)
    assert data.keys() >= {f"n{number:04}" for number in range(151, 300)}


def test_a_node_with_too_many_codes_takes_no_other_out_of_the_list() -> None:
    codes = {f"{number:08X}": T for number in range(20_000)}
    big, small = Separated(codes, (0,)), Separated({"80C98000": T}, (0,))
    nodes = {"n1": {chip(0): big}, "n2": {chip(0): small}}
    data = rendered(nodes)
    assert read_chips("n1", data["n1"]) == {chip(0): {}}, "it is still there"
    assert read_chips("n2", data["n2"]) == {chip(0): {"80C98000": T}}
    nodes["n1"] = {chip(0): Separated(codes)}
    assert set(rendered(nodes)) == {"n2"}, "what was never shown may be left out"
    nodes["n3"] = {chip(0): Separated({"80C98000": T})}
    assert set(rendered(nodes)) == {"n2", "n3"}
