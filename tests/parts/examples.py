"""How many examples and recordings the unit tests have; ``make test`` has all of them.

Properties take half of the time of the unit tests of agent and advisor. ``VIGIL_TEST_EXAMPLES``
divides the number of their examples; ``make unit`` alone sets it. Explicit examples of a property
always run. Of families of recordings or seeds, some are unit tests and the rest is slow.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from tests.unit import DIVISOR

if TYPE_CHECKING:
    from collections.abc import Iterable

_DEFAULT = 100
_MIN_EXAMPLES = 10


def examples(count: int = _DEFAULT, **others: Any) -> settings:
    """Return the settings of a property with ``count`` examples where none are left out.

    The time of an example has no deadline, because it depends on the load of the machine.
    """
    divided = max(min(count, _MIN_EXAMPLES), count // int(os.environ.get(DIVISOR, "1")))
    return settings(max_examples=divided, deadline=None, **others)


def mostly_slow(values: Iterable[Any], every: int) -> list[Any]:
    """Return all values as parameters: each one of ``every`` is a unit test, the rest is slow."""
    return [
        pytest.param(value, marks=pytest.mark.slow if number % every else ())
        for number, value in enumerate(values)
    ]
