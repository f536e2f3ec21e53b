"""The processes in which virtual time runs: the order of their sets, and how many there are."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Item = TypeVar("Item")
Result = TypeVar("Result")


def fix_order_of_sets() -> None:
    """Start this program again where the order of sets of strings would depend on chance.

    That order is a part of what a seed decides.
    """
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(sys.executable, sys.orig_argv, os.environ | {"PYTHONHASHSEED": "0"})


@contextlib.contextmanager
def mapped(
    work: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Iterator[Iterator[Result]]:
    """Yield the results of ``work`` in the order of ``items``, which ``workers`` processes compute.

    One worker is this process itself.
    """
    if workers == 1:
        yield map(work, items)
        return
    with multiprocessing.Pool(workers) as pool:
        yield pool.imap(work, items)
