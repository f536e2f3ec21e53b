"""The limits of a broker: stated in its CONNACK (MQTT 5), or learned from its behaviour."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from contract.errors import StoreRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from stores.mqtt.address import BrokerAddress

LEAST_BYTES = 4096
"""A broker that takes no larger packets cannot be used: heartbeats may be as long."""

_BESIDE_DOCUMENT_BYTES = 1024
"""The room in a packet for everything but its document, above all the topic."""

FIRST_PAUSE_SECONDS = 60.0
LAST_PAUSE_SECONDS = 3600.0
_SET_SIZE = "max_packet_size and message_size_limit in mosquitto"


class BrokerLimits(NamedTuple):
    """The limits in the CONNACK; ``packet_bytes`` is ``None`` without a limit (MQTT 5, 3.2.2.3)."""

    packet_bytes: int | None = None
    retains: bool = True
    qos: int = 2


def limits_of(properties: object) -> BrokerLimits:
    """Read the properties of a CONNACK; those of MQTT 3.1.1 has none."""
    return BrokerLimits(
        getattr(properties, "MaximumPacketSize", None),
        bool(getattr(properties, "RetainAvailable", 1)),
        int(getattr(properties, "MaximumQoS", 2)),
    )


def unusable(address: BrokerAddress, limits: BrokerLimits) -> StoreRefused | None:
    """Return why a broker with these limits cannot be used and what to set, or ``None``."""
    if not limits.retains:
        return no_retain(address)
    if limits.qos < 1:
        return no_qos(address)
    if limits.packet_bytes is not None and limits.packet_bytes < LEAST_BYTES:
        return StoreRefused(
            f"{address}: the broker takes packets of {limits.packet_bytes} bytes only; at least "
            f"{LEAST_BYTES} are needed, and 2 MiB are enough for everything: raise {_SET_SIZE}"
        )
    return None


def no_retain(address: BrokerAddress) -> StoreRefused:
    """Return the error for a broker that keeps no retained messages."""
    return StoreRefused(
        f"{address}: the broker keeps no retained messages, which all documents and heartbeats "
        "are: set retain_available true (mosquitto), or what your broker calls it"
    )


def no_qos(address: BrokerAddress) -> StoreRefused:
    """Return the error for a broker that acknowledges nothing."""
    return StoreRefused(
        f"{address}: the broker takes messages at QoS 0 only and so acknowledges none: set max_qos "
        "1 or 2 (mosquitto), or what your broker calls it"
    )


def packet_bytes(topic: str, payload: bytes, *, is_v5: bool) -> int:
    """Return the size of a PUBLISH packet at QoS 1 without properties (MQTT 5, 3.3)."""
    rest = 2 + len(topic.encode()) + 2 + (1 if is_v5 else 0) + len(payload)
    length_bytes = next(count for count in (1, 2, 3, 4, 5) if rest < 128**count)
    return 1 + length_bytes + rest


class PacketLimit:
    """The largest packet that a broker takes, learned over all connections to it.

    A limit in CONNACK counts for its connection. A broker that states none, as with MQTT 3.1.1,
    hangs up or throws away what is too large for it. A connection that breaks twice, one after the
    other, while something larger than ever taken is on its way, shows a limit; an answer that
    reports it shows it at once. Restarts of a broker may look like that, so what was found out is
    tried again: after the next break for another reason, and after pauses that double.
    """

    def __init__(
        self, address: BrokerAddress, steady_seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._address = address
        self._steady_seconds = steady_seconds
        self._announced: int | None = None
        self._learned: int | None = None
        """The smallest packet that was not taken."""
        self._suspect: int | None = None
        """The packet with which the connection before broke."""
        self._taken = 0
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._again_at = 0.0

    @property
    def limit(self) -> int | None:
        """The largest packet that is sent; ``None`` without a limit that is known."""
        known = [self._announced] if self._announced is not None else []
        if self._learned is not None:
            known.append(self._learned - 1)
        return min(known, default=None)

    @property
    def largest_document(self) -> int | None:
        """How many bytes a document may have; ``None`` without a limit that is known."""
        limit = self.limit
        return None if limit is None else limit - _BESIDE_DOCUMENT_BYTES

    def begin(self, limits: BrokerLimits) -> None:
        """Record that a connection is there."""
        self._announced = limits.packet_bytes

    def check(self, topic: str, size: int) -> None:
        """Raise ``StoreRefused`` for a packet that the broker would not take."""
        if self._learned is not None and self._steady_seconds() >= self._again_at:
            self._try_again()
        limit = self.limit
        if limit is not None and size > limit:
            how = "takes" if limit == self._announced else "has shown to take"
            raise StoreRefused(
                f"{topic} has {size} bytes as a packet, and {self._address} {how} at most {limit}: "
                f"raise {_SET_SIZE}; nothing else is held up"
            )

    def record_accepted(self, size: int) -> None:
        """Record that a packet was acknowledged."""
        self._taken = max(self._taken, size)
        if self._suspect is not None and size >= self._suspect:
            self._suspect = None
            self._pause_seconds = FIRST_PAUSE_SECONDS

    def refuse(self, size: int) -> None:
        """Apply that the broker reported, or showed, a packet of this size as too large."""
        self._learned = min(size, self._learned or size)
        self._suspect = None
        self._taken = min(self._taken, size - 1)
        self._again_at = self._steady_seconds() + self._pause_seconds
        self._pause_seconds = min(2 * self._pause_seconds, LAST_PAUSE_SECONDS)

    def record_break(self, largest: int, *, was_too_large: bool) -> None:
        """Record that the connection broke while ``largest`` was sent, 0 for nothing."""
        self._announced = None
        if was_too_large and largest:
            self.refuse(largest)
        elif largest > max(self._taken, LEAST_BYTES):
            if self._suspect is None:
                self._suspect = largest
            else:
                self.refuse(min(largest, self._suspect))
        elif self._learned is not None:
            self._try_again()
        else:
            self._suspect = None

    def _try_again(self) -> None:
        """Try the larger size again: one more break is enough to refuse it."""
        assert self._learned is not None, "there is something to try"
        self._suspect, self._learned = self._learned, None
