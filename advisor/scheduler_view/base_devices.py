"""The Node annotation ``baseDeviceInfos``: which cards a node has (``consumers#1.6``)."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, TypeAlias

import msgspec


class BaseDevices(msgspec.Struct, frozen=True):
    """What is in ``baseDeviceInfos``: card names in order, and of which kind they are."""

    names: tuple[str, ...]
    has_virtual: bool
    has_ids: bool


_Uint32: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]


class _Card(msgspec.Struct, omit_defaults=True):
    ip: str | None = msgspec.field(default="", name="IP")
    super_device_id: _Uint32 | None = msgspec.field(default=0, name="SuperDeviceID")
    device_id: _Uint32 | None = msgspec.field(default=None, name="DeviceID")


_NO_CARDS = (msgspec.MsgspecError, UnicodeError, RecursionError)
_base_cards = msgspec.json.Decoder(dict[str, _Card | None])


@lru_cache(maxsize=32768)
def base_devices(text: str | None) -> BaseDevices | None:
    """Return the cards of the annotation; ``None`` where it is missing or no JSON."""
    if text is None:
        return None
    try:
        found = _base_cards.decode(text)
    except _NO_CARDS:
        return None
    return BaseDevices(
        _shared(tuple(sorted(name for name in found if name.count("-") == 1))),
        any(name.count("-") > 1 for name in found),
        all(card is not None and card.device_id is not None for card in found.values()),
    )


def without_addresses(text: str) -> str:
    """Return an annotation with the same cards, one text for all nodes that have them.

    What a node has of its own are addresses, which ``base_devices`` does not read.
    """
    try:
        cards = _base_cards.decode(text)
    except _NO_CARDS:
        return ""
    return _text(
        tuple(sorted(cards)),
        all(card is not None and card.device_id is not None for card in cards.values()),
    )


@lru_cache(maxsize=256)
def _text(names: tuple[str, ...], has_ids: bool) -> str:
    card = _Card(device_id=0) if has_ids else _Card()
    return msgspec.json.encode(dict.fromkeys(names, card)).decode()


@lru_cache(maxsize=256)
def _shared(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return one value for all nodes with the same cards."""
    return names
