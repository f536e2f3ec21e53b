"""Words that are almost another word."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from contract.scheduling import RESOURCE_DOMAIN

if TYPE_CHECKING:
    from collections.abc import Iterable

_MIN_PARTS = 2
_ENDING = re.compile(r"(?<=[a-z]{4})(?:ing|ed|er|e|s)$")
_SHORT = 8
"""Up to this length one letter may differ, above it two."""


def distance(word: str, other: str, most: int) -> int:
    """Return the edit distance of two words, or ``most`` + 1 where it is larger.

    Two letters that changed places count once.
    """
    if abs(len(word) - len(other)) > most:
        return most + 1
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(word, 1):
        before, above, row = row, before, [i]
        for j, wanted in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted))
            if above and j > 1 and letter == other[j - 2] and word[i - 2] == wanted:
                cost = min(cost, above[j - 2] + 1)
            row.append(cost)
        # Numbers of later rows are no smaller.
        if min(row) > most:
            return most + 1
    return min(row[-1], most + 1)


@lru_cache(maxsize=4096)
def nearest(word: str, words: tuple[str, ...]) -> str | None:
    """Return the word of ``known`` that ``word`` is almost; ``None`` where it is one, or like none.

    Case and the kind of dash do not count as letters, and ``huawei.com/`` may be missing.
    """
    # Two letters are near to everything; of a long word the distance takes long.
    if word in words or len(word) < 3 or len(word) > 100:
        return None
    flat = _flat(word)
    for candidate in words:
        if _flat(candidate) == flat or candidate == f"{RESOURCE_DOMAIN}{word}":
            return candidate
    return _by_distance(word, words)


@lru_cache(maxsize=4096)
def nearest_key(key: str, words: tuple[str, ...]) -> str | None:
    """Return the key of ``known`` that ``key`` is almost, also with a word part less or more.

    ``pod-reschedule`` and ``fault-retry`` are such keys. Keys of other domains are none.
    """
    best = nearest(key, words)
    if best is not None or key in words or len(key) > 100:
        return best
    domain, _, name = key.rpartition("/")
    if domain and f"{domain}/" != RESOURCE_DOMAIN:
        return None
    stems = _stems(name)
    for candidate in words:
        others = _stems(candidate.removeprefix(RESOURCE_DOMAIN))
        shorter, longer = sorted((stems, others), key=len)
        if len(shorter) < _MIN_PARTS or len(longer) - len(shorter) > 1:
            continue
        rest = (longer[:index] + longer[index + 1 :] for index in range(len(longer)))
        if stems == others or shorter in rest:
            return candidate
    return None


def _stems(name: str) -> tuple[str, ...]:
    """Return the parts of a key without endings, such as ``ing``."""
    return tuple(_ENDING.sub("", part) for part in _flat(name).split("-"))


def _by_distance(word: str, words: Iterable[str]) -> str | None:
    best = None
    for candidate in words:
        allowed = 1 if len(candidate) <= _SHORT else 2
        steps = distance(word, candidate, allowed)
        if steps <= allowed and (best is None or steps < best[0]):
            best = (steps, candidate)
    return best and best[1]


def _flat(word: str) -> str:
    return word.lower().replace("_", "-")
