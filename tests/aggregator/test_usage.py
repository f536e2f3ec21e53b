"""Which chips pods use, as a store tells it."""

from __future__ import annotations

from aggregator.usage import Usage
from stores.base import Interrupted, PodUsage, UsageEnded, UsageListed


def pod(uid: str, node: str, *chips: str) -> PodUsage:
    return PodUsage(uid, node, chips)


def used(usage: Usage) -> set[str]:
    chips = usage.of("n1")
    assert chips is not None
    return set(chips)


def test_before_the_first_list_nobody_knows() -> None:
    usage = Usage()
    assert usage.of("n1") is None
    assert usage.observe(Interrupted("no rights")) == frozenset()
    assert usage.of("n1") is None
    assert usage.answered
    assert usage.observe(UsageListed(())) is None  # of all nodes more is known now
    assert used(usage) == set()


def test_pods_come_and_go() -> None:
    usage = Usage()
    usage.observe(UsageListed((pod("a", "n1", "Ascend910-0"),)))
    assert usage.observe(pod("b", "n1", "Ascend910-1", "Ascend910-2")) == frozenset({"n1"})
    assert used(usage) == {"Ascend910-0", "Ascend910-1", "Ascend910-2"}
    assert usage.observe(pod("b", "n1", "Ascend910-1", "Ascend910-2")) == frozenset()
    assert usage.observe(pod("b", "n2", "Ascend910-7")) == frozenset({"n1", "n2"})
    assert used(usage) == {"Ascend910-0"}
    assert usage.observe(UsageEnded("a")) == frozenset({"n1"})
    assert usage.observe(UsageEnded("a")) == frozenset()
    assert used(usage) == set()
    assert usage.pods == 1


def test_two_pods_that_share_a_chip() -> None:
    usage = Usage()
    usage.observe(UsageListed((pod("a", "n1", "Ascend910-0"), pod("b", "n1", "Ascend910-0"))))
    usage.observe(UsageEnded("a"))
    assert used(usage) == {"Ascend910-0"}


def test_a_later_list_names_the_nodes_that_differ() -> None:
    usage = Usage()
    usage.observe(UsageListed((pod("a", "n1", "x"), pod("b", "n2", "x"), pod("c", "n3", "x"))))
    usage.observe(Interrupted("away"))
    assert used(usage) == {"x"}
    listed = UsageListed((pod("b", "n2", "x"), pod("c", "n4", "x"), pod("d", "n5", "x")))
    assert usage.observe(listed) == frozenset({"n1", "n3", "n4", "n5"})
    assert usage.interrupted is None


def test_what_a_scheduler_chose_does_not_count_yet() -> None:
    usage = Usage()
    chosen = PodUsage("a", "n1", (), ("Ascend910-0",))
    usage.observe(UsageListed((chosen,)))
    assert (used(usage), usage.pods) == (set(), 0)
    usage.observe(pod("a", "n1", "Ascend910-0"))
    assert used(usage) == {"Ascend910-0"}
    assert usage.observe(chosen) == frozenset({"n1"})
    assert (used(usage), usage.pods) == (set(), 0)
