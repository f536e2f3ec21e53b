"""The rules of the fault configuration in force about a code, for the pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from contract.operator_rules.fault_configuration import Judged
    from contract.pages.faults import FaultRule

_MOST_KEPT = 1000


class FaultRules:
    """Finds rules in what ``judged`` returns, each code once until the configuration changes."""

    def __init__(self, judged: Callable[[], Judged]) -> None:
        self._judged = judged
        self._searched: Judged | None = None
        self._found: dict[tuple[str, str], tuple[FaultRule, ...]] = {}

    def of(self, subject_kind: str, code: str) -> tuple[FaultRule, ...]:
        """Return the rules about ``code`` on a subject of this kind, such as ``chip``."""
        # An agent that nobody asks for its faults does not need the tables for people.
        from contract.pages.rule_places import kind_of_subject, rules_of

        judged = self._judged()
        if judged is not self._searched or len(self._found) >= _MOST_KEPT:
            self._searched, self._found = judged, {}
        key = (subject_kind, code)
        if key not in self._found:
            kind = kind_of_subject(subject_kind)
            self._found[key] = tuple(rules_of(judged.in_force, judged.catalogue, kind, code))
        return self._found[key]
