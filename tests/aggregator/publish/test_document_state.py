"""Own, foreign or late: when a document is written and when writing stops."""

from __future__ import annotations

import msgspec

from aggregator.cluster_documents.shards import Value
from aggregator.plugin import View
from aggregator.publish.document_state import ClusterDocument
from aggregator.publish.upstream_views import DesiredView, ViewDocument
from contract.names import CLUSTER_LABEL, CLUSTER_NAMESPACE
from service.owned_documents.foreign_writes import MANY
from service.owned_documents.owned_document import StoreContent
from stores.base import Document
from stores.touch import TOUCHED
from tests.aggregator.nodes import instant

NAME = "cluster-info-device-0"


def document(text: str, version: str, labels: dict[str, str] | None = None) -> Document:
    labels = dict([CLUSTER_LABEL]) if labels is None else labels
    return Document(CLUSTER_NAMESPACE, NAME, {NAME: text}, labels, version=version)


def written(text: str = "one", revision: int = 1) -> tuple[ClusterDocument, Value]:
    """Return an output whose value is stored as version 10."""
    output, value = ClusterDocument(NAME), Value(text, 1, revision)
    assert output.must_write(value, instant(0))
    output.written("10", value, output.version)
    assert not output.must_write(value, instant(0))
    return output, value


def test_document_with_the_desired_content_is_not_written() -> None:
    output, value = ClusterDocument(NAME), Value("one", 1, 0)
    output.observe_watch(document("one", "5"))
    assert not output.must_write(value, instant(0))
    assert output.acknowledged == 0
    assert (output.nodes, output.bytes, output.writes_total) == (1, 3, 0)
    assert output.must_write(Value("two", 1, 1), instant(0))


def test_at_start_a_difference_is_written_and_is_nobodys_fault() -> None:
    for shown in (StoreContent.NOTHING, document("old", "5"), document("one", "5", {})):
        output = ClusterDocument(NAME)
        output.observe_watch(shown)
        assert output.must_write(Value("one", 1, 0), instant(0))
        assert output.foreign.total == 0


def test_the_watch_may_be_late_or_early() -> None:
    output, value = written()
    output.observe_watch(document("one", "10"))
    assert not output.must_write(value, instant(1))
    newer = Value("two", 1, 2)
    assert output.must_write(newer, instant(2))
    output.observe_watch(document("two", "11"))  # before the write returns
    output.written("11", newer, output.version)
    assert not output.must_write(newer, instant(3))
    output.observe_watch(document("one", "10"))  # an old event at last
    assert not output.must_write(newer, instant(4))
    output.observe_watch(document("two", "11"))
    assert not output.must_write(newer, instant(9))
    assert output.foreign.total == 0


def test_a_foreign_change_a_foreign_label_and_a_deletion_are_repaired() -> None:
    for shown in (document("mine", "99"), document("one", "99", {}), StoreContent.NOTHING):
        output, value = written()
        output.observe_watch(shown)
        assert output.must_write(value, instant(1))
        assert output.foreign.total == 1
        output.written("100", value, output.version)
        assert not output.must_write(value, instant(1))


def test_additions_of_others_are_kept_unless_readers_act_on_them() -> None:
    output, value = written()
    output.observe_watch(document("one", "99", {**dict([CLUSTER_LABEL]), "more": "x"}))
    assert not output.must_write(value, instant(1))
    both = Document(
        CLUSTER_NAMESPACE,
        NAME,
        {NAME: "one", "x": "y"},
        {**dict([CLUSTER_LABEL]), "more": "x"},
        {"a": "b", "npu-vigil/touched": "then"},
        "100",
    )
    output.observe_watch(both)
    assert not output.must_write(value, instant(1))
    two = Value("two", 1, 2)
    assert output.must_write(two, instant(1))
    assert output.with_added(output.document(two)) == msgspec.structs.replace(
        both, data={NAME: "two", "x": "y"}, annotations={"a": "b"}, version=""
    )
    output.written("101", two, output.version)
    labels = {**dict([CLUSTER_LABEL]), "mx-consumer-cim": "true"}
    output.observe_watch(document("two", "102", labels))
    assert output.must_write(two, instant(2))
    assert output.document(two).labels == dict([CLUSTER_LABEL])


def test_an_answer_that_differs_from_our_own_write_is_a_foreign_change() -> None:
    output, value = written()
    for number in range(MANY):
        output.observe_watch(document("theirs", f"{10 + number}"))
        must = output.must_write(value, instant(number / 10))
        assert output.foreign.total == number + 1
        assert must is (number < MANY - 1)
        output.record_attempt(instant(number / 10))
        output.written(f"{11 + number}", value, output.version)
    assert output.conflict
    assert output.differing == (f"key {NAME}",)


def test_a_write_that_changes_nothing_is_no_success() -> None:
    output, value = written()
    output.observe_watch(document("theirs", "11"))
    assert output.must_write(value, instant(1))
    output.written("11", value, "11")  # a webhook made of it what was there
    assert output.must_write(value, instant(2))
    assert output.foreign.total == 2
    assert output.differing == (f"key {NAME}",)


def test_a_write_whose_answer_was_lost_is_known_again() -> None:
    output, _value = written()
    newer = Value("two", 1, 2)
    output.failed("no answer", newer)
    output.observe_watch(document("two", "11"))
    newest = Value("three", 1, 3)
    assert output.must_write(newest, instant(1))
    assert output.foreign.total == 0


def test_write_whose_answer_was_lost_is_made_once_the_store_shows_it() -> None:
    output, _value = written()
    newer = Value("two", 1, 2)
    assert output.must_write(newer, instant(1))
    output.failed("no answer", newer)
    output.observe_watch(document("one", "10"))
    assert output.must_write(newer, instant(1)), "it did not arrive"
    output.failed("no answer", newer)
    output.observe_watch(document("two", "11"))
    assert not output.must_write(newer, instant(2))
    assert output.acknowledged == 2
    assert output.trouble.reason is None
    assert output.foreign.total == 0


def test_first_write_whose_answer_was_lost_is_made_once_the_store_shows_it() -> None:
    output, value = ClusterDocument(NAME), Value("one", 1, 1)
    output.failed("no answer", value)
    output.observe_watch(document("one", "10"))
    assert not output.must_write(value, instant(1))
    assert output.trouble.reason is None


def test_nothing_to_write_is_no_failure() -> None:
    output = ViewDocument(CLUSTER_NAMESPACE, "clusterd-manual-info-cm", {})
    view = View(CLUSTER_NAMESPACE, "clusterd-manual-info-cm", {}, {"a": "b"})
    output.failed("the store is away", DesiredView(view, 0))
    output.observe_watch(StoreContent.NOTHING)
    nothing = DesiredView(msgspec.structs.replace(view, data=None), 1)
    assert not output.must_write(nothing, instant(1))
    assert output.trouble.reason is None


def test_an_earlier_own_value_put_back_by_another_program_is_repaired() -> None:
    output, _value = written()
    newer = Value("two", 1, 2)
    output.written("11", newer, output.version)
    output.observe_watch(document("one", "12"))
    assert output.must_write(newer, instant(1))
    assert output.foreign.total == 1


def test_put_back_with_its_old_version_it_is_repaired_when_it_cannot_be_a_late_event() -> None:
    output, _ = written()
    newer = Value("two", 1, 2)
    output.written("11", newer, output.version)
    output.observe_watch(document("one", "10"))
    assert not output.must_write(newer, instant(1))
    assert not output.settled
    assert not output.must_write(newer, instant(2.9))
    assert output.must_write(newer, instant(3))
    assert output.foreign.total == 1


def test_more_than_three_foreign_writes_a_minute_are_a_conflict_until_it_is_quiet() -> None:
    output, value = written()
    for number in range(MANY - 1):
        output.observe_watch(document("theirs", f"a{number}"))
        assert output.must_write(value, instant(number))
        output.record_attempt(instant(number))
        output.written(f"b{number}", value, output.version)
    output.observe_watch(document("theirs", "a9"))
    assert not output.must_write(value, instant(10))
    assert output.conflict
    assert output.must_find_writer
    assert output.conflict_seconds(value, instant(10)) == 1
    assert not output.must_write(Value("two", 1, 2), instant(10.9))
    assert output.must_write(Value("two", 1, 2), instant(11))
    output.record_attempt(instant(11))
    output.written("b9", Value("two", 1, 2), output.version)
    assert not output.must_write(Value("three", 1, 3), instant(11.9))
    output.observe_watch(document("theirs", "a10"))
    assert not output.must_write(Value("three", 1, 3), instant(12.9)), "the pause has doubled"
    assert output.must_write(Value("three", 1, 3), instant(13))
    output.record_attempt(instant(13))
    output.written("b10", Value("three", 1, 3), output.version)
    assert not output.must_write(Value("three", 1, 3), instant(70))
    assert output.conflict
    assert not output.must_write(Value("three", 1, 3), instant(73))
    assert not output.conflict, "nobody else wrote for a minute"


def test_foreign_writes_now_and_then_are_repaired_each_time() -> None:
    output, value = written()
    for number in range(10):
        output.observe_watch(document("theirs", f"a{number}"))
        assert output.must_write(value, instant(number * 25))
        output.written(f"b{number}", value, output.version)
    assert not output.conflict


def test_lag_counts_from_the_change_to_its_acknowledgement() -> None:
    output, _ = written()
    newer = Value("two", 1, 2)
    assert output.must_write(newer, instant(3))
    output.failed("away", newer)
    assert output.must_write(newer, instant(9))
    since_ms = output.pending_since_ms
    assert since_ms == instant(3).wall_ms
    output.written("11", newer, output.version)
    assert not output.must_write(newer, instant(10))
    assert output.pending_since_ms is None
    assert output.trouble.reason is None


def test_a_touch_is_no_foreign_write_however_late_it_is_shown() -> None:
    output, value = written()
    output.touched(value)
    output.observe_watch(document("one", "20"))
    assert not output.must_write(value, instant(1))
    assert output.settled
    newer = Value("two", 1, 2)
    assert output.must_write(newer, instant(2))
    output.observe_watch(document("one", "21"))  # the event of another touch, during the write
    output.written("22", newer, output.version)
    assert not output.must_write(newer, instant(2.1))
    output.observe_watch(document("two", "22"))
    assert not output.must_write(newer, instant(2.2))
    assert output.foreign.total == 0


def test_a_touched_value_that_another_program_puts_back_is_repaired() -> None:
    output, value = written()
    output.touched(value)
    newer = Value("two", 1, 2)
    output.written("22", newer, output.version)
    output.observe_watch(document("one", "23"))
    assert not output.must_write(newer, instant(3))
    assert not output.settled
    assert output.must_write(newer, instant(5.1))
    assert output.foreign.total == 1


def test_our_touch_of_a_foreign_write_is_no_second_one() -> None:
    output, value = written()
    output.touched(value)  # it arrives after the foreign write
    output.observe_watch(document("mine", "99"))
    assert output.must_write(value, instant(1))
    annotations = {TOUCHED: "then"}
    output.observe_watch(msgspec.structs.replace(document("mine", "100"), annotations=annotations))
    output.written("101", value, output.version)
    assert not output.must_write(value, instant(1.1))
    output.observe_watch(document("one", "101"))
    assert not output.must_write(value, instant(1.2))
    assert output.settled
    assert output.foreign.total == 1


def test_a_write_replaces_what_was_seen_last() -> None:
    output, value = written()
    assert output.version == "10"
    output.observe_watch(document("one", "12"))  # a touch
    assert output.version == "12"
    output.written("13", Value("two", 1, 2), output.version)
    output.observe_watch(document("one", "12"))  # late
    output.observe_watch(document("one", "10"))  # later still
    assert output.version == "13"
    output.observe_watch(StoreContent.NOTHING)
    assert output.version == ""
    assert output.must_write(value, instant(1))


def test_late_event_of_a_replaced_document_is_no_foreign_write() -> None:
    output, value = written()
    output.observe_read(document("mine", "11"))
    assert output.must_write(value, instant(1))
    output.written("12", value, output.version)
    assert output.foreign.total == 1
    output.observe_watch(document("mine", "11"))
    assert not output.must_write(value, instant(1.1))
    output.observe_watch(document("one", "12"))
    assert not output.must_write(value, instant(1.2))
    assert output.foreign.total == 1


def test_one_change_that_was_reported_and_read_is_one() -> None:
    output, value = written()
    output.observe_watch(StoreContent.NOTHING)  # as a watch shows a document without its label
    assert output.must_write(value, instant(1))
    output.observe_read(document("one", "11", {}))
    assert output.must_write(value, instant(1))
    assert output.foreign.total == 1
    output.written("12", value, output.version)
    output.observe_watch(document("theirs", "13"))
    assert output.must_write(value, instant(2))
    output.observe_read(document("theirs again", "14"))
    assert output.must_write(value, instant(2))
    assert output.foreign.total == 3


def test_a_change_that_is_reported_while_a_write_is_refused_because_of_it_is_another_one() -> None:
    output, value = written()
    output.observe_watch(document("theirs", "11"))
    assert output.must_write(value, instant(1))  # refused, for what the watch shows meanwhile
    output.observe_watch(document("theirs again", "12"))
    output.observe_read(document("theirs again", "12"))
    assert output.must_write(value, instant(1))
    assert output.foreign.total == 2


def test_a_change_that_is_reported_before_the_answer_to_our_write_is_from_after_it() -> None:
    output, value = written()
    output.observe_watch(document("theirs", "11"))
    assert output.must_write(value, instant(1))
    output.observe_watch(document("theirs again", "13"))
    output.written("12", value, "11")
    assert output.must_write(value, instant(1.1))
    assert output.foreign.total == 2


def test_a_new_leader_takes_what_its_watch_shows_late_for_nobodys() -> None:
    output, value = written()
    output.begin_term(instant(10), fence=True)
    assert not output.fenced
    output.observe_read(document("one", "20"))
    assert not output.must_write(value, instant(10))
    output.observe_watch(document("older", "19"))  # the watch is behind what was listed
    assert not output.must_write(value, instant(10.5))
    output.observe_watch(document("one", "20"))
    assert not output.must_write(value, instant(10.6))
    output.observe_watch(document("theirs", "21"))
    assert not output.must_write(value, instant(11))
    assert output.must_write(value, instant(13.1))
    assert output.foreign.total == 1
    output.written("22", value, output.version)
    assert output.fenced


def test_difference_in_the_first_list_after_a_break_is_no_foreign_write() -> None:
    output, value = written()
    for number in range(3 * MANY):
        output.interrupted()
        assert not output.must_write(value, instant(3 * number))
        output.listed(StoreContent.NOTHING if number % 2 else document("older", "3"))
        # What our writes replaced may be shown late, so that is looked at twice.
        output.must_write(value, instant(3 * number))
        assert output.must_write(value, instant(3 * number + 2))
        version = str(100 + number)
        output.written(version, value, output.version)
        output.observe_watch(document("one", version))
        assert not output.must_write(value, instant(3 * number + 2))
    assert output.foreign.total == 0
    assert not output.conflict
    output.observe_watch(StoreContent.NOTHING)
    assert output.must_write(value, instant(60))
    assert output.foreign.total == 1, "afterwards it is a stranger's again"


def test_after_the_first_list_shows_our_write_later_changes_are_foreign() -> None:
    output, value = written()
    output.interrupted()
    output.listed(document("one", "10"))
    assert not output.must_write(value, instant(1))
    output.observe_watch(document("mine", "11"))
    assert output.must_write(value, instant(2))
    assert output.foreign.total == 1
