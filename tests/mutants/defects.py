"""Defects that each break a rule of the documents; at least one unit test finds each.

One for each invariant of ``docs/architecture.md`` (two for the fifth, which has two parts) and one
for each of the decisions 1 to 21. A place is named by its function and what stands there, as
``ast.unparse`` writes it. So a defect outlives a move to another file and another format.
"""

from __future__ import annotations

import ast
from functools import cache
from typing import NamedTuple

from tests.measured.places import PRODUCT
from tests.mutants.edits import Edit, begin_of, end_of
from tests.parts.tree import ROOT, files


class Defect(NamedTuple):
    """In the function or class ``scope``, ``before`` becomes ``after``."""

    breaks: str
    """What it breaks; begins with the number of the invariant or decision."""
    scope: str
    before: str
    after: str


class Place(NamedTuple):
    """Where a defect is to be made."""

    path: str
    edit: Edit
    ran: range | None
    """The lines that a test must have run to notice; ``None`` for what an import runs."""


DEFECTS = (
    Defect(
        "invariant 1: a document is written without being decoded by its reader's rules",
        "DocumentPublisher._write",
        "self._published.verify(write.document)",
        "pass",
    ),
    Defect(
        "invariant 2: rows are missing in the journal, and no gap is marked",
        "Journal._rows_committed",
        "self.append([(RowKind.GAP, body_of(gap))], now_ms)",
        "pass",
    ),
    Defect(
        "invariant 3: a source that gives no answer counts as one that answers",
        "_source_blind",
        "replace(current, blind=current.blind | {item.source: blindness})",
        "current",
    ),
    Defect(
        "invariant 4: a bad configuration of faults replaces the good one",
        "FaultConfiguration._judge",
        "judge(dict(self._data), self._files.texts, before, self._files.unreadable)",
        "judge(dict(self._data), self._files.texts, InForce(), self._files.unreadable)",
    ),
    Defect(
        "invariant 5: a foreign change of a document is left as it is",
        "DocumentPublisher._difference",
        "self._document.differences(self._acknowledged.document)",
        "()",
    ),
    Defect(
        "invariant 5: a name that is added to ManuallySeparateNPU counts without a request",
        "DeviceInfoDocument.operator_requests",
        "(read_names(foreign.data) or frozenset()) & requests.keys()",
        "read_names(foreign.data) or frozenset()",
    ),
    Defect(
        "invariant 6: a decision reads a clock instead of the time that it gets",
        "claim_after_read",
        "now_ms - other.beaten_at_ms",
        "__import__('time').time() * 1000 - other.beaten_at_ms",
    ),
    Defect(
        "invariant 7: what the journal's queue drops is not counted",
        "Journal.append",
        "self._dropped += 1",
        "pass",
    ),
    Defect(
        "invariant 8: seconds are taken for milliseconds",
        "LeaseElection._act",
        "self._seen.duration_seconds * 1000",
        "self._seen.duration_seconds",
    ),
    Defect(
        "decision 1: a driver process that hangs is not replaced",
        "Calls._failed",
        "self._supervisor.replace(child, str(stuck))",
        "pass",
    ),
    Defect(
        "decision 2: a publication waits for a journal that is in trouble",
        "Journal.committed",
        "self._trouble is not None",
        "False",
    ),
    Defect(
        "decision 3: UpdateTime may not run ahead of the clock",
        "Stamps.next",
        "stamp - clock - LEAD_SECONDS",
        "stamp - clock",
    ),
    Defect(
        "decision 4: no watch is set on the folders of a directory",
        "DirectoryStore.watch",
        "await self._thread.run(self._add_all, inotify, selection)",
        "pass",
    ),
    Defect(
        "decision 5: of two agents with one node name, both give way",
        "claim_after_read",
        "beats and identity(holder) < identity(other.holder)",
        "False",
    ),
    Defect(
        "decision 6: a mark of progress does not renew the deadline of its task",
        "Watchdog.register.mark",
        "self._since[task] = self._steady_seconds()",
        "self._since.setdefault(task, self._steady_seconds())",
    ),
    Defect(
        "decision 7: while the API server is away, no chip is in use",
        "StoreAllocation._observe",
        "not isinstance(event, Interrupted) and self._recompute()",
        "self._recompute()",
    ),
    Defect(
        "decision 8: an agent beats while one of its tasks hangs",
        "Heartbeat._is_withheld",
        "reason is not None",
        "False",
    ),
    Defect(
        "decision 9: new nodes fill a document up to its limit",
        "ShardedDocument._room",
        "rest + size <= self._fill",
        "rest + size <= self._limit",
    ),
    Defect(
        "decision 10: a follower takes a Lease that is still renewed",
        "LeaseElection._act",
        "now_ms <= free_at_ms",
        "False",
    ),
    Defect(
        "decision 11: other addresses take the places of the host's own",
        "Connections._limit_all",
        "self._of_others > limits.connections - limits.host_places",
        "self._of_others > limits.connections",
    ),
    Defect(
        "decision 12: a document of one node counts for other nodes, too",
        "split_foreign",
        "report.node == owner.node",
        "True",
    ),
    Defect(
        "decision 13: foreign changes never become a conflict",
        "ForeignWrites.record_foreign_write",
        "len(self._at) < MANY or now - self._at[0] >= WINDOW_SECONDS",
        "True",
    ),
    Defect(
        "decision 14: the list of blind sources is written as often as it changes",
        "VigilKeyText.named",
        "now >= due",
        "True",
    ),
    Defect(
        "decision 15: a request without an answer is not repeated",
        "Attempts._is_overdue",
        "due <= now",
        "False",
    ),
    Defect(
        "decision 16: a document is written while another program writes it",
        "Ownership.is_ours",
        "self.decided.is_set() and self.other is None",
        "self.decided.is_set()",
    ),
    Defect(
        "decision 17: a write that a heartbeat names is not compared with what was read",
        "Claims._compare",
        "not self._got(claim, number)",
        "False",
    ),
    Defect(
        "decision 18: faults stay at an id that the driver gave to another chip",
        "listed",
        "comparison.moved.get(subject.id, subject.id)",
        "subject.id",
    ),
    Defect(
        "decision 19: a packet that the broker does not take is sent",
        "LearnedLimits.check",
        "limit is not None and size > limit",
        "False",
    ),
    Defect(
        "decision 20: the health word of a chip without events judges no code",
        "_health_read",
        "all_judged_again(current, 'the health word was read', context)",
        "current",
    ),
    Defect(
        "decision 21: what a directory lacks counts as deleted",
        "DirectoryStore",
        "absence_is_deletion = False",
        "absence_is_deletion = True",
    ),
)


class DefectMisplaced(Exception):
    """The place of a defect is missing, or there are several."""


def locate(defect: Defect) -> Place:
    """Return the place of a defect. Raises ``DefectMisplaced``."""
    names = defect.scope.split(".")
    found = [
        _place(path, scope, node, defect.after)
        for path, source in _product()
        if all(f"class {name}" in source or f"def {name}(" in source for name in names)
        for scope in _scopes(ast.parse(source), names)
        for node in _standing(scope, defect.before)
    ]
    if len(found) != 1:
        where = ", ".join(f"{place.path}:{place.edit.begin[0]}" for place in found) or "no file"
        raise DefectMisplaced(
            f"{defect.breaks}: {defect.before!r} of {defect.scope} is in {where}; name the place "
            "that it has now in tests/mutants/defects.py"
        )
    return found[0]


def _place(path: str, scope: ast.AST, node: ast.expr | ast.stmt, after: str) -> Place:
    begin, end = begin_of(node), end_of(node)
    ran = None if isinstance(scope, ast.ClassDef) else range(begin[0], end[0] + 1)
    return Place(path, Edit(begin, end, after), ran)


@cache
def _product() -> tuple[tuple[str, str], ...]:
    paths = [path for path in files("*.py") if path.split("/")[0] in PRODUCT]
    return tuple((path, (ROOT / path).read_text(encoding="utf-8")) for path in paths)


def _scopes(tree: ast.AST, names: list[str]) -> list[ast.AST]:
    scopes = [tree]
    for name in names:
        scopes = [
            node
            for scope in scopes
            for node in ast.iter_child_nodes(scope)
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name == name
        ]
    return scopes


def _standing(scope: ast.AST, text: str) -> list[ast.expr | ast.stmt]:
    """Return the outermost nodes that stand for ``text``."""
    nodes = [node for node in ast.walk(scope) if isinstance(node, ast.expr | ast.stmt)]
    same = [node for node in nodes if ast.unparse(node) == text]
    # A call that stands for itself is an expression and a statement.
    inner = {id(node.value) for node in same if isinstance(node, ast.Expr)}
    return [node for node in same if id(node) not in inner]
