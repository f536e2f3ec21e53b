"""Devices of dynamic resource allocation and the rules that taint them, as a store has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

from contract.documents.device_taints import DeviceSlice, DeviceUse, TaintRule
from stores.cluster import KindUnavailable, Snapshot, Update
from stores.interruption import Interrupted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from contract.documents.device_taints import Device


class ServedVersions(msgspec.Struct, frozen=True):
    """By which version of ``resource.k8s.io`` an API server serves rules and devices.

    ``None``: it does not. ``has_group``: it has the group at all.
    """

    rules: str | None = None
    devices: str | None = None
    has_group: bool = False


DevicesEvent: TypeAlias = (
    Snapshot[DeviceSlice] | Update[DeviceSlice] | KindUnavailable | Interrupted
)
"""Keys are names."""

RulesEvent: TypeAlias = Snapshot[TaintRule] | Update[TaintRule] | KindUnavailable | Interrupted
"""Keys are names."""


class DeviceTaints(Protocol):
    """Follows devices and our rules, and writes these. Each method raises ``StoreError``."""

    async def served(self) -> ServedVersions:
        """Return which versions are served now."""

    def devices(self, version: str, attributes: Mapping[str, str]) -> AsyncIterator[DevicesEvent]:
        """Yield the slices of the drivers in ``attributes``, see ``slice_reader``, for ever."""

    def rules(self, version: str) -> AsyncIterator[RulesEvent]:
        """Yield our rules for ever."""

    async def use(
        self, version: str, drivers: frozenset[str], devices: Iterable[Device]
    ) -> DeviceUse:
        """Count the pods that use devices of these drivers, and those of ``devices``.

        Reads all ResourceClaims, and keeps none.
        """

    async def list_rules(self, version: str) -> tuple[TaintRule, ...]:
        """Return all rules of ours as they are stored now."""

    async def read_rule(self, version: str, name: str) -> TaintRule | None:
        """Return a rule as it is stored now; ``None`` where there is none."""

    async def make_rule(self, version: str, rule: TaintRule) -> TaintRule:
        """Make a rule and return it as it is stored; ``StoreConflict`` where one is there."""

    async def change_rule(self, version: str, rule: TaintRule) -> TaintRule:
        """Change a rule and return it as it is stored.

        ``StoreConflict`` where it has another uid or version.
        """

    async def delete_rule(self, version: str, rule: TaintRule) -> None:
        """Delete a stored rule; ``StoreConflict`` where it has another uid or version.

        One that is not there is not an error.
        """
