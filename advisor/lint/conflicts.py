"""Labels of one PodGroup that do not agree: Volcano joins them (``consumers#2.1``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.lint.finding import finding
from advisor.lint.labels import LABELS
from contract.scheduling import APP, MINDIE_APPS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from advisor.lint.finding import FindingPlace, LintFinding
    from advisor.lint.workload import PlacedText, Texts


def judge(sources: Iterable[tuple[str, Texts]], place: FindingPlace) -> Iterator[LintFinding]:
    """Return each label that two sources of one PodGroup give different values.

    A source is a name and labels.
    """
    first: dict[str, tuple[str, PlacedText]] = {}
    for name, texts in sources:
        for key, text in texts.items():
            where, other = first.setdefault(key, (name, text))
            if other.value == text.value:
                continue
            if key in LABELS or (key == APP and MINDIE_APPS.count(text.value)):
                yield finding(
                    "LABEL_CONFLICT",
                    place.at(text.line, text.file),
                    key=key,
                    value=text.value,
                    other=other.value,
                    where=f"{where} (line {other.line})",
                    joined=f"{other.value}|{text.value}",
                )
