"""The places of a module that a mutant changes, by kind, and how.

==========  ======================================================================================
comparison  ``<`` becomes ``>``, ``==`` becomes ``!=``, ``in`` becomes ``not in``, and so on
bound       an integer of a comparison, a slice or a range grows or shrinks by one; without one,
            ``<`` becomes ``<=``
condition   what ``if``, ``while`` and a comprehension ask for is negated
boolean     ``and`` becomes ``or``, and ``or`` becomes ``and``
statement   a call, or an assignment to an attribute or an item, is left out
await       ``await`` is left out
arguments   the first two arguments of a call change places
exception   ``raise`` is left out, or nothing is done about an exception that is caught
default     the value of a parameter, a field or a constant of the module is another one
==========  ======================================================================================

Annotations, documentation and what only type checkers run are left alone.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from tests.mutants.edits import Edit, begin_of, end_of, text_between

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS = (
    "comparison",
    "bound",
    "condition",
    "boolean",
    "statement",
    "await",
    "arguments",
    "exception",
    "default",
)

_TURNED: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", ">"),
    ast.Gt: (">", "<"),
    ast.LtE: ("<=", ">="),
    ast.GtE: (">=", "<="),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: (r"not\s+in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: (r"is\s+not", "is"),
}
_WIDENED: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.Gt: (">", ">="),
    ast.LtE: ("<=", "<"),
    ast.GtE: (">=", ">"),
}
# Their result does not depend on the order.
_COMMUTATIVE = {"min", "max"}


class Site(NamedTuple):
    """A place and what a mutant does there."""

    path: str
    """The file, relative to the repository."""
    scope: str
    """Function or class around it, with dots; empty in the module itself."""
    kind: str
    line: int
    ran: range | None
    """The lines that a test must have run to notice; ``None`` for what an import runs."""
    before: str
    """What stands there, in one line."""
    number: int
    """Counts what is the same in one scope, from 0."""
    edit: Edit

    @property
    def key(self) -> str:
        """Name the place without its file and line, so that it outlives a move."""
        return f"{self.scope} {self.kind} {self.before} {self.number}"


def sites_of(source: str, path: str) -> list[Site]:
    """Return all places of a module, in the order of its lines."""
    finder = _Finder(source, path)
    finder.visit(ast.parse(source))
    return finder.sites


class _Finder(ast.NodeVisitor):
    def __init__(self, source: str, path: str) -> None:
        self.sites: list[Site] = []
        self._source = source
        self._path = path
        self._scope: list[str] = []
        self._functions = 0
        self._ran: range | None = None
        self._seen: Counter[tuple[str, str, str]] = Counter()

    def _add(self, kind: str, node: ast.expr | ast.stmt, edit: Edit, before: str = "") -> None:
        scope = ".".join(self._scope)
        before = before or " ".join(ast.unparse(node).split())
        number = self._seen[scope, kind, before]
        self._seen[scope, kind, before] += 1
        ran = self._ran or range(node.lineno, end_of(node)[0] + 1)
        place = Site(self._path, scope, kind, node.lineno, ran, before, number, edit)
        self.sites.append(place if self._functions else place._replace(ran=None))

    def _replace(self, kind: str, node: ast.expr | ast.stmt, text: str) -> None:
        self._add(kind, node, Edit(begin_of(node), end_of(node), text))

    def _text(self, node: ast.expr | ast.stmt) -> str:
        return text_between(self._source, begin_of(node), end_of(node))

    # What is left alone

    def visit_If(self, node: ast.If) -> None:
        asked = ast.unparse(node.test)
        if asked in ("TYPE_CHECKING", "__name__ == '__main__'"):
            for other in node.orelse:
                self.visit(other)
            return
        self._negate(node.test)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            if isinstance(node.target, ast.Name):
                self._change(node.value)
            elif isinstance(node.target, ast.Attribute):
                self._replace("statement", node, "pass")
            self.visit(node.value)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if any(ast.unparse(base).startswith("Protocol") for base in node.bases):
            return
        self._within(node.name, node.body)

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if any(ast.unparse(one).endswith("overload") for one in node.decorator_list):
            return
        self._functions += 1
        self._scope.append(node.name)
        self._ran = range(node.body[0].lineno, end_of(node)[0] + 1)
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self._change(default)
        self._ran = None
        self._scope.pop()
        self._within(node.name, node.body)
        self._functions -= 1

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_function(node)

    def _within(self, name: str, body: Sequence[ast.stmt]) -> None:
        self._scope.append(name)
        for statement in body:
            self.visit(statement)
        self._scope.pop()

    # Conditions

    def _negate(self, test: ast.expr) -> None:
        self._replace("condition", test, f"(not ({self._text(test)}))")

    def visit_While(self, node: ast.While) -> None:
        if not isinstance(node.test, ast.Constant):
            self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._negate(test)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        text = self._text(node.values[0])
        for left, right in zip(node.values, node.values[1:], strict=False):
            text += self._turned(left, right, old, new) + self._text(right)
        begin, end = begin_of(node.values[0]), end_of(node.values[-1])
        self._add("boolean", node, Edit(begin, end, text))
        self.generic_visit(node)

    def _turned(self, left: ast.expr, right: ast.expr, old: str, new: str) -> str:
        between = text_between(self._source, end_of(left), begin_of(right))
        return re.sub(old if old.isalpha() is False else rf"\b{old}\b", new, between, count=1)

    def visit_Compare(self, node: ast.Compare) -> None:
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            where = Edit(end_of(left), begin_of(right), "")
            old, new = _TURNED[type(operator)]
            turned = where._replace(text=self._turned(left, right, old, new))
            self._add("comparison", node, turned)
            numbers = [one for one in (left, right) if _is_integer(one)]
            if numbers:
                for number in numbers:
                    self._shift(number)
            elif type(operator) in _WIDENED:
                old, new = _WIDENED[type(operator)]
                widened = where._replace(text=self._turned(left, right, old, new))
                self._add("bound", node, widened)
            left = right
        self.generic_visit(node)

    def _shift(self, node: ast.expr) -> None:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            self._replace("bound", node, str(node.value + 1 if node.value % 2 else node.value - 1))

    def visit_Slice(self, node: ast.Slice) -> None:
        for limit in (node.lower, node.upper):
            if limit is not None and _is_integer(limit):
                self._shift(limit)
        self.generic_visit(node)

    # Statements

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call | ast.Await):
            self._replace("statement", node, "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._replace("statement", node, "pass")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if all(isinstance(one, ast.Attribute | ast.Subscript) for one in node.targets):
            self._replace("statement", node, "pass")
        elif not self._scope and isinstance(node.value, ast.Constant):
            self._change(node.value)
        self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        self._replace("statement", node, "pass")

    def visit_Await(self, node: ast.Await) -> None:
        self._add("await", node, Edit(begin_of(node), begin_of(node.value), ""))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        first = node.args[:2]
        if (
            len(first) == 2
            and not any(isinstance(one, ast.Starred) for one in first)
            and ast.unparse(node.func) not in _COMMUTATIVE
            and ast.unparse(first[0]) != ast.unparse(first[1])
        ):
            one, other = first
            between = text_between(self._source, end_of(one), begin_of(other))
            swapped = self._text(other) + between + self._text(one)
            self._add("arguments", node, Edit(begin_of(one), end_of(other), swapped))
        if ast.unparse(node.func) == "range":
            for limit in node.args:
                if _is_integer(limit):
                    self._shift(limit)
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._replace("exception", node, "pass")
        self.generic_visit(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        first, last = node.body[0], node.body[-1]
        if not isinstance(first, ast.Raise | ast.Pass | ast.Continue):
            before = "; ".join(" ".join(ast.unparse(one).split()) for one in node.body)
            self._add("exception", first, Edit(begin_of(first), end_of(last), "pass"), before)
        self.generic_visit(node)

    def _change(self, node: ast.expr) -> None:
        if isinstance(node, ast.Constant) and (new := _other(node.value)) is not None:
            self._replace("default", node, repr(new))


def _is_integer(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


def _other(value: object) -> object:
    """Return another value of the same type; ``None`` for what has none here."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value * 2 + 1
        case str():
            return "" if value else "x"
    return None
