"""Draws the places of a run by a seed, and the tests that may notice each."""

from __future__ import annotations

import ast
import hashlib
import re
from itertools import accumulate, chain, islice, zip_longest
from typing import TYPE_CHECKING

from tests.imports import distances, importers
from tests.measured.places import PRODUCT
from tests.mutants.sites import KINDS, Site, sites_of
from tests.parts.tree import ROOT, files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.measured.lookup import Measured

# Where a wrong decision reaches the scheduler. Each has a share, and so has the rest.
GROUPS = {
    "contract": ("contract/",),
    "policy": ("agent/policy/",),
    "pipeline": ("aggregator/merge/", "aggregator/cluster_documents/"),
    "processors": ("aggregator/processors/",),
    "writers": ("agent/publishing/", "aggregator/publish/", "service/owned_documents/"),
}
REST = "rest"
_IN_GROUPS = 0.75
_MAX_SECONDS = 60.0
"""So long the tests for a mutant that none of them notices may take, as they were measured."""


def all_sites() -> dict[str, list[Site]]:
    """Return the places of the product by group."""
    found: dict[str, list[Site]] = {name: [] for name in (*GROUPS, REST)}
    for path in product_files():
        source = (ROOT / path).read_text(encoding="utf-8")
        found[_group(path)] += sites_of(source, path)
    return found


def product_files() -> list[str]:
    """Return the modules of the product that people write."""
    return [
        path
        for path in files("*.py")
        if path.split("/")[0] in PRODUCT and not path.endswith("_pb2.py")
    ]


def constants_at(source: str, line: int) -> list[str]:
    """Return the names that the statement of a module or class at this line defines."""
    body: list[ast.stmt] = ast.parse(source).body
    while body:
        node = next((one for one in body if one.lineno <= line <= (one.end_lineno or 0)), None)
        match node:
            case ast.ClassDef():
                body = node.body
            case ast.Assign(targets=targets):
                return [target.id for target in targets if isinstance(target, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name)):
                return [name]
            case _:
                break
    return []


def _group(path: str) -> str:
    return next((name for name, begins in GROUPS.items() if path.startswith(begins)), REST)


def draw(sites: Mapping[str, Sequence[Site]], count: int, seed: int) -> list[Site]:
    """Return ``count`` places, the same for the same seed, three quarters of them in ``GROUPS``.

    A place keeps its turn when other places come and go, and when it moves to another file.
    """
    share = round(count * _IN_GROUPS / len(GROUPS))
    shares = dict.fromkeys(GROUPS, share) | {REST: count - share * len(GROUPS)}
    return [site for name, number in shares.items() for site in _drawn(sites[name], number, seed)]


def _drawn(sites: Sequence[Site], count: int, seed: int) -> list[Site]:
    def turn(site: Site) -> str:
        return hashlib.sha256(f"{seed} {site.key} {site.path}".encode()).hexdigest()

    ordered = sorted(sites, key=turn)
    by_kind = [[one for one in ordered if one.kind == kind] for kind in KINDS]
    rows = chain.from_iterable(zip_longest(*by_kind))
    return list(islice((one for one in rows if one is not None), count))


class Chooser:
    """Chooses tests by what the last ``make coverage`` measured."""

    def __init__(self, measured: Measured) -> None:
        self._measured = measured
        self._importers = importers()

    def tests(self, path: str, ran: range | None, constants: Sequence[str] = ()) -> list[str]:
        """Return the tests that ran one of these lines, the quickest first.

        For what an import runs (``None``) these are the tests that ran a line which names one of
        the ``constants`` that are defined there; where there is none, those that ran a line of the
        file, or whose file needs this one.
        """
        found = (
            (self._measured.tests_of_lines(path, ran) if ran is not None else ())
            or self._by_names(constants)
            or self._measured.tests_of_file(path)
            or self._by_imports(path)
        )
        ordered = sorted(found, key=self._measured.seconds.__getitem__)
        sums = accumulate(self._measured.seconds[test] for test in ordered)
        return [test for test, sum_ in zip(ordered, sums, strict=True) if sum_ <= _MAX_SECONDS]

    def _by_names(self, constants: Sequence[str]) -> set[str]:
        if not constants:
            return set()
        named = re.compile(rf"\b(?:{'|'.join(constants)})\b")
        found: set[str] = set()
        for path in product_files():
            text = (ROOT / path).read_text(encoding="utf-8")
            # Most files name none of them, so their lines need not be looked at.
            if named.search(text):
                lines = (n for n, line in enumerate(text.splitlines(), 1) if named.search(line))
                found |= self._measured.tests_of_lines(path, lines)
        return found

    def _by_imports(self, path: str) -> set[str]:
        far = distances(path, self._importers)
        near = sorted((one for one in far if "/test_" in one), key=far.__getitem__)[:10]
        return {test for test in self._measured.seconds if test.partition("::")[0] in near}
