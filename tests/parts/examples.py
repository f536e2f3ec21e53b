"""How many examples a property gets: all of them in ``make test``, a quarter in ``make unit``.

Properties take half of the time of the unit tests of agent and advisor. ``VIGIL_TEST_EXAMPLES``
divides the number of their examples; ``make unit`` alone sets it. Explicit examples of a property
always run.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

from tests.unit import DIVISOR

_DEFAULT = 100
_MIN_EXAMPLES = 10


def examples(count: int = _DEFAULT, **others: Any) -> settings:
    """Return the settings of a property with ``count`` examples where none are left out.

    The time of an example has no deadline, because it depends on the load of the machine.
    """
    divided = max(min(count, _MIN_EXAMPLES), count // int(os.environ.get(DIVISOR, "1")))
    return settings(max_examples=divided, deadline=None, **others)
