"""The Node annotation ``baseDeviceInfos``: which cards a node has (``consumers#1.6``)."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, TypeAlias

import msgspec


class BaseDevices(msgspec.Struct, frozen=True):
    """What ``baseDeviceInfos`` says: card names in order, and of which kind they are."""

    names: tuple[str, ...]
    has_virtual: bool
    has_ids: bool


_Uint32: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]


class _Card(msgspec.Struct):
    ip: str | None = msgspec.field(default="", name="IP")
    super_device_id: _Uint32 | None = msgspec.field(default=0, name="SuperDeviceID")
    device_id: _Uint32 | None = msgspec.field(default=None, name="DeviceID")


_base_cards = msgspec.json.Decoder(dict[str, _Card | None])


@lru_cache(maxsize=32768)
def base_devices(text: str | None) -> BaseDevices | None:
    """Return the cards of the annotation; ``None`` where it is missing or no JSON."""
    if text is None:
        return None
    try:
        found = _base_cards.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return BaseDevices(
        _shared(tuple(sorted(name for name in found if name.count("-") == 1))),
        any(name.count("-") > 1 for name in found),
        all(card is not None and card.device_id is not None for card in found.values()),
    )


@lru_cache(maxsize=256)
def _shared(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return one value for all nodes with the same cards."""
    return names
