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


_base_cards = msgspec.json.Decoder(dict[str, _Card | None])


# Above the 10,000 nodes of docs/scale.md: each has a text of its own, with its addresses.
@lru_cache(maxsize=32768)
def base_devices(text: str | None) -> BaseDevices | None:
    """Return the cards of the annotation; ``None`` where it is missing or no JSON."""
    cards = None if text is None else _cards(text)
    if cards is None:
        return None
    names, has_ids = cards
    # A name with more than one dash is virtual: ``Ascend910-2c-100-1`` (consumers#2.1).
    has_virtual = any(name.count("-") > 1 for name in names)
    return BaseDevices(
        _shared(tuple(name for name in names if name.count("-") == 1)), has_virtual, has_ids
    )


def without_addresses(text: str) -> str:
    """Return an annotation with the same cards, one text for all nodes that have them.

    What a node has of its own are addresses, which ``base_devices`` does not read.
    """
    cards = _cards(text)
    return "" if cards is None else _text(*cards)


def _cards(text: str) -> tuple[tuple[str, ...], bool] | None:
    """Return the names of the cards, sorted, and whether all have a ``DeviceID``."""
    try:
        cards = _base_cards.decode(text)
    # The plugin treats a text that it cannot read as missing (consumers#1.6).
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    has_ids = all(card is not None and card.device_id is not None for card in cards.values())
    return tuple(sorted(cards)), has_ids


@lru_cache(maxsize=256)
def _text(names: tuple[str, ...], has_ids: bool) -> str:
    # The value of the id does not matter, only that each card has one (``has_ids``).
    card = _Card(device_id=0) if has_ids else _Card()
    return msgspec.json.encode(dict.fromkeys(names, card)).decode()


@lru_cache(maxsize=256)
def _shared(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return one value for all nodes with the same cards."""
    return names
