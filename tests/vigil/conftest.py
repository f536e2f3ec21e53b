"""What the tests of the verbs for people share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.vigil.stand import Stand

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def stand() -> Iterator[Stand]:
    with Stand().serving() as stand:
        yield stand
