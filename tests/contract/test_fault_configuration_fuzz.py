"""Whatever comes as a fault configuration is read or refused, quickly, and breaks nothing."""

from __future__ import annotations

import gc
import time
from random import Random
from typing import TYPE_CHECKING

import pytest

from contract.fault_configuration import DOCUMENTS
from tests.fuzzing import mutated, targets

if TYPE_CHECKING:
    from collections.abc import Iterator

INPUTS = 2_000
MOST_SECONDS = 0.050


@pytest.fixture
def _alone() -> Iterator[None]:
    """What other tests left behind is not searched for garbage while a parser is timed."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("_alone")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("position", range(len(DOCUMENTS)), ids=list(DOCUMENTS))
def test_wrong_texts(position: int) -> None:
    target, random = targets()[position], Random(5)
    slowest = 0.0
    for _ in range(INPUTS):
        text = mutated(target.texts, random)
        began = time.thread_time()
        target.read(text)
        slowest = max(slowest, time.thread_time() - began)
    assert slowest <= MOST_SECONDS


@pytest.mark.parametrize("position", range(len(DOCUMENTS)), ids=list(DOCUMENTS))
def test_the_texts_that_they_are_made_of_can_be_read(position: int) -> None:
    target = targets()[position]
    target.read(target.texts[0])
    assert len(target.texts) > 2
