"""The budget of hardware that both options share."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from aggregator.scheduler_signals.device_pools import NodeChip
from aggregator.scheduler_signals.taint_budget import TaintBudget, TaintDemand, TaintTurn, admitted

if TYPE_CHECKING:
    from collections.abc import Collection

WORST, BAD, MILD = 0, 1, 3
PERCENT = 10


def nodes(total: int, *standing: str, **wanted: TaintTurn) -> TaintDemand[str]:
    return TaintDemand(wanted, standing, total, PERCENT)


def chips(total: int, *standing: NodeChip, **wanted: TaintTurn) -> TaintDemand[NodeChip]:
    """Return the demand of chips that are named as ``NODE_CHIP``."""
    named = {name.partition("_"): turn for name, turn in wanted.items()}
    of = {NodeChip(node, int(chip)): turn for (node, _, chip), turn in named.items()}
    return TaintDemand(of, standing, total, PERCENT)


def test_of_those_that_wait_the_worst_is_first_then_the_oldest() -> None:
    wanted = {
        "a": TaintTurn(MILD, 1),
        "b": TaintTurn(BAD, 9),
        "c": TaintTurn(BAD, 5),
        "d": TaintTurn(WORST, 20),
    }
    assert admitted(nodes(20, **wanted)).nodes == {"d", "c"}
    assert admitted(nodes(20, "a", **wanted)).nodes == {"a", "d"}, "a standing one stays"
    assert admitted(nodes(20, "a", "z", **wanted)).nodes == {"a", "z"}, "others stay, too"
    assert admitted(nodes(3, **wanted)).nodes == {"d"}, "one node is always possible"


def test_nodes_and_chips_share_one_budget() -> None:
    of_nodes = nodes(20, a=TaintTurn(WORST, 1), b=TaintTurn(MILD, 1))
    of_chips = chips(160, c_0=TaintTurn(BAD, 1), c_1=TaintTurn(BAD, 2))
    both = admitted(of_nodes, of_chips)
    # Two nodes of 20, or 16 chips of 160: chips are worse than the second node.
    assert both.nodes == {"a"}
    assert both.chips == {NodeChip("c", 0), NodeChip("c", 1)}
    assert admitted(of_nodes).nodes == {"a", "b"}


def test_what_stands_of_the_other_option_takes_room() -> None:
    standing = [NodeChip("c", chip) for chip in range(16)]
    full = admitted(nodes(20, a=TaintTurn(WORST, 1)), chips(160, *standing))
    assert full.nodes == frozenset()
    assert full.chips == set(standing)
    full = admitted(nodes(20, "a", "b"), chips(160, c_0=TaintTurn(WORST, 1)))
    assert full.chips == frozenset()


def test_a_chip_of_a_tainted_node_needs_no_room() -> None:
    both = admitted(
        nodes(20, "a", "b"), chips(160, a_0=TaintTurn(MILD, 1), c_0=TaintTurn(WORST, 1))
    )
    assert both.chips == frozenset(), "a worse one waits, and nothing passes it"
    both = admitted(nodes(20, "a", "b"), chips(160, a_0=TaintTurn(MILD, 1)))
    assert both.chips == {NodeChip("a", 0)}


TURNS = st.builds(TaintTurn, st.integers(0, 3), st.integers(0, 9))
NODES = st.sampled_from("abcdefgh")
CHIPS = st.builds(NodeChip, NODES, st.integers(0, 3))


@given(
    st.dictionaries(NODES, TURNS),
    st.sets(NODES),
    st.dictionaries(CHIPS, TURNS),
    st.sets(CHIPS),
    st.integers(8, 60),
    st.integers(1, 100),
    st.integers(1, 100),
)
def test_the_budget_holds_for_any_table(
    wanted: dict[str, TaintTurn],
    standing: set[str],
    wanted_chips: dict[NodeChip, TaintTurn],
    standing_chips: set[NodeChip],
    total: int,
    percent: int,
    percent_of_chips: int,
) -> None:
    of_nodes = TaintDemand(wanted, standing, total, percent)
    of_chips = TaintDemand(wanted_chips, standing_chips, total * 4, percent_of_chips)

    def out(tainted: Collection[str], chips: Collection[NodeChip]) -> Fraction:
        alone = sum(chip.node not in tainted for chip in chips)
        return Fraction(len(tainted), total) + Fraction(alone, total * 4)

    both = admitted(of_nodes, of_chips)
    assert standing <= both.nodes <= standing | wanted.keys()
    assert standing_chips <= both.chips <= standing_chips | wanted_chips.keys()
    limit = Fraction(max(percent, percent_of_chips), 100)
    least = Fraction(1, total)
    assert out(both.nodes, both.chips) <= max(limit, least, out(standing, standing_chips))
    assert len(both.nodes) <= max(1, total * percent // 100, len(standing))
    assert len(both.chips) <= max(1, total * 4 * percent_of_chips // 100, len(standing_chips))


def test_a_change_of_one_option_plans_the_other_again() -> None:
    budget, planned = TaintBudget(), []
    budget.nodes = lambda: nodes(10, a=TaintTurn(BAD, 1))
    budget.plan_nodes = lambda: planned.append("nodes")
    budget.plan_chips = lambda: planned.append("chips")
    assert budget.admitted.nodes == {"a"}
    budget.chips = lambda: chips(10, NodeChip("c", 0))
    budget.change_chips()
    assert budget.admitted.nodes == frozenset()
    budget.change_nodes()
    assert planned == ["nodes", "chips"]
