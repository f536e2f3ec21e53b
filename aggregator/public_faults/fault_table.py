"""Which table is in force: that of the ConfigMap, else that of the file, else what is shipped.

``docs/spec/clusterd.md#4.5``. A bad text leaves in force what was (defect B21).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from contract.errors import DocumentError, Problem
from contract.operator_rules.public_fault_table import (
    TABLE_KEY,
    PublicFaultTable,
    read_public_fault_table,
    shipped_table,
)
from service.log.trouble import Troubles
from stores.base import Changed, Deleted, DocumentsListed, Selection

if TYPE_CHECKING:
    from stores.base import WatchEvent

_log = logging.getLogger(__name__)

NAMESPACE, NAME = "cluster-system", "npu-vigil-public-faults"
CONFIG_MAP = Selection(namespace=NAMESPACE, name=NAME)
FILE, SHIPPED = "file", "shipped"


class FaultTables:
    """The good ones by place: a store's number stands for its ConfigMap."""

    def __init__(self) -> None:
        self.problems: dict[str, tuple[Problem, ...]] = {}
        """What is wrong, by place."""
        self.unreadable: Troubles[str] = Troubles(
            _log,
            "codes of public faults from %s stay as they were: %s",
            "codes of public faults from %s are good again",
        )
        """Why the text that is there is not in force, by place."""
        self._good: dict[str, PublicFaultTable] = {}

    @property
    def place(self) -> str:
        """Where the one in force is from."""
        return min(self._good, key=lambda place: (place == FILE, place), default=SHIPPED)

    @property
    def in_force(self) -> PublicFaultTable:
        """The one that holds."""
        return self._good.get(self.place) or shipped_table()

    def observe(self, source: int, event: WatchEvent) -> None:
        """Apply an event of the ConfigMap in the store with this number."""
        place = f"{NAMESPACE}/{NAME} of store {source}"
        match event:
            case DocumentsListed(documents):
                found = next((one.data for one in documents), None)
                self.put(place, None if found is None else found.get(TABLE_KEY))
            case Changed(document):
                self.put(place, document.data.get(TABLE_KEY))
            case Deleted():
                self.put(place, None)

    def put(self, place: str, text: str | None) -> None:
        """Set the text at ``place``; ``None``: there is none."""
        if text is None:
            self._good.pop(place, None)
            self.problems.pop(place, None)
            self.unreadable.forget(place)
            return
        try:
            table, problems = read_public_fault_table(text, place)
        except DocumentError as error:
            self.unreadable.begin(place, str(error))
            return
        self.unreadable.end(place)
        if problems and self.problems.get(place) != problems:
            _log.warning(
                "codes of public faults from %s: %s", place, "; ".join(map(str, problems[:10]))
            )
        self.problems[place] = problems
        self._good[place] = table
