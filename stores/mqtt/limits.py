"""The limits of a broker: stated in its CONNACK (MQTT 5), or learned from its behaviour."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from contract.errors import StoreRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from stores.mqtt.address import BrokerAddress

_log = logging.getLogger(__name__)

MIN_PACKET_BYTES = 4096
"""A broker that takes no larger packets cannot be used: heartbeats may be as long."""

_BESIDE_DOCUMENT_BYTES = 1024
"""The room in a packet for everything but its document, above all the topic."""

MAX_UNDER_WAY = 16
"""Publications that wait for their acknowledgement; paho holds back those beyond 20."""

PROGRESS_SECONDS = 10.0
"""A broker that acknowledges nothing for so long, and has no place for more, is left."""

FAILURES = 2
"""So often must the connection end over a packet that went alone, before a limit is assumed."""

FIRST_PAUSE_SECONDS = 60.0
LAST_PAUSE_SECONDS = 3600.0
_SET_SIZE = "max_packet_size and message_size_limit in mosquitto"


class BrokerLimits(NamedTuple):
    """The limits in the CONNACK; ``packet_bytes`` is ``None`` without a limit (MQTT 5, 3.2.2.3).

    ``under_way``: so many publications at QoS 1 may be unacknowledged (Receive Maximum).
    ``wildcards``: filters may have them.
    """

    packet_bytes: int | None = None
    retains: bool = True
    qos: int = 2
    under_way: int = 65_535
    wildcards: bool = True


def limits_of(properties: object) -> BrokerLimits:
    """Read the properties of a CONNACK; those of MQTT 3.1.1 has none."""
    return BrokerLimits(
        # paho sets only the attributes that the packet has; a missing property means no limit.
        getattr(properties, "MaximumPacketSize", None),
        bool(getattr(properties, "RetainAvailable", 1)),
        int(getattr(properties, "MaximumQoS", 2)),
        int(getattr(properties, "ReceiveMaximum", 65_535)),
        bool(getattr(properties, "WildcardSubscriptionAvailable", 1)),
    )


def unusable(address: BrokerAddress, limits: BrokerLimits) -> StoreRefused | None:
    """Return why a broker with these limits cannot be used and what to set, or ``None``."""
    if not limits.retains:
        return no_retain(address)
    if limits.qos < 1:
        return no_qos(address)
    if limits.packet_bytes is not None and limits.packet_bytes < MIN_PACKET_BYTES:
        return StoreRefused(
            f"{address}: the broker takes packets of {limits.packet_bytes} bytes only; at least "
            f"{MIN_PACKET_BYTES} are needed, and 2 MiB are enough for everything: raise {_SET_SIZE}"
        )
    return None


def no_retain(address: BrokerAddress) -> StoreRefused:
    """Return the error for a broker that keeps no retained messages."""
    return StoreRefused(
        f"{address}: the broker keeps no retained messages, which all documents and heartbeats "
        "are: set retain_available true (mosquitto), or what your broker calls it"
    )


def no_wildcards(address: BrokerAddress) -> StoreRefused:
    """Return the error for a broker that sends what is retained for exact filters only."""
    return StoreRefused(
        f"{address}: the broker sends no retained messages for topic filters with wildcards, as "
        "RabbitMQ 3.10. Documents and heartbeats of nodes that are silent would be missing. "
        "Agents can use it, an aggregator needs another broker (docs/stores.md)"
    )


def small_retained(address: BrokerAddress, size: int) -> str:
    """Return what is lacked where retained messages are kept, but not of this size."""
    return (
        f"{address}: the broker keeps no retained message of {size} bytes, which a document may "
        "have: later readers would not get it. Raise the size limit of retained messages (EMQX: "
        f"retainer.max_payload_size), {_SET_SIZE}"
    )


def not_kept(address: BrokerAddress, topic: str, size: int) -> StoreRefused:
    """Return the error for a document that was acknowledged and that later readers do not get."""
    return StoreRefused(
        f"{topic} has {size} bytes as a packet, and {address} acknowledged it but does not keep it "
        "for later readers. Readers that were connected have received it. Raise the size limit of "
        f"retained messages (EMQX: retainer.max_payload_size), {_SET_SIZE}"
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
    # The length is a variable byte integer: 7 bits in each byte (MQTT 5, 1.5.5).
    length_bytes = next(count for count in (1, 2, 3, 4, 5) if rest < 128**count)
    return 1 + length_bytes + rest


class UnderWay(NamedTuple):
    """A publication that was sent and is not acknowledged; ``size`` is that of its packet."""

    topic: str
    payload: bytes
    size: int


class LearnedLimits:
    """The limits of a broker, as far as its CONNACK or all connections to it have shown them.

    Stated limits count for their connection. A broker that states none, as with MQTT 3.1.1, ends
    the connection. Whatever it ended over, the next connection has fewer publications under way,
    and sends what is larger than all that it took alone, after everything else. A limit of the size
    is assumed once that has ended two connections that had taken small packets before. What was
    assumed is tried again: after the next break for another reason, and after pauses that double.
    """

    def __init__(
        self, address: BrokerAddress, steady_seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._address = address
        self._steady_seconds = steady_seconds
        self._stated = BrokerLimits()
        self._taken = 0
        """The largest packet that was acknowledged on this connection."""
        self._was_small_taken = False
        self._suspect = 0
        """The largest packet that was under way when a connection broke, until it is taken."""
        self._failed: tuple[int, ...] = ()
        """The smallest packets that ended a connection alone, at most ``FAILURES``."""
        self._lost: dict[str, tuple[int, bytes]] = {}
        """By topic: the size and digest of what was under way when a connection broke."""
        self._is_assumed = False
        """Whether the limit follows from breaks, and the broker did not name it."""
        self._not_kept: int | None = None
        """The smallest packet that was acknowledged and not retained."""
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._again_at = 0.0
        self._under_way = MAX_UNDER_WAY
        self._under_way_again_at = 0.0

    @property
    def limit(self) -> int | None:
        """The largest packet that is sent; ``None`` without a limit that is known."""
        limits = [] if self._stated.packet_bytes is None else [self._stated.packet_bytes]
        if len(self._failed) == FAILURES:
            # The larger of the two sizes that failed: only for it are there two breaks, as a
            # smaller one failed, too.
            limits.append(self._failed[-1] - 1)
        return min(limits, default=None)

    @property
    def largest_document(self) -> int | None:
        """How many bytes a document may have; ``None`` without a limit that is known."""
        limits = [] if self.limit is None else [self.limit]
        if self._not_kept is not None:
            limits.append(self._not_kept - 1)
        return min(limits) - _BESIDE_DOCUMENT_BYTES if limits else None

    def record_connection(self, limits: BrokerLimits) -> PublishWindow:
        """Record that a connection is there; return its places for publications."""
        self._stated = limits
        self._taken, self._was_small_taken = 0, False
        if self._steady_seconds() >= self._under_way_again_at:
            self._under_way = MAX_UNDER_WAY
        return PublishWindow(min(self._under_way, limits.under_way), self._steady_seconds)

    def check(self, topic: str, size: int) -> None:
        """Raise ``StoreRefused`` for a packet that the broker would not take."""
        if len(self._failed) == FAILURES and self._steady_seconds() >= self._again_at:
            self._try_again()
        limit = self.limit
        if limit is not None and size > limit:
            how = "takes"
            if limit != self._stated.packet_bytes and self._is_assumed:
                how = f"is assumed (it ended {FAILURES} connections over such a packet) to take"
            raise StoreRefused(
                f"{topic} has {size} bytes as a packet, and {self._address} {how} at most {limit}: "
                f"raise {_SET_SIZE}; nothing else is held up"
            )

    def is_suspect(self, size: int) -> bool:
        """Return whether a packet of this size has to go alone, after everything else."""
        return self._suspect > 0 and size > max(self._taken, MIN_PACKET_BYTES)

    def record_accepted(self, size: int) -> None:
        """Record that a packet was acknowledged, or that the broker shows what was in it."""
        self._taken = max(self._taken, size)
        self._was_small_taken = self._was_small_taken or size <= MIN_PACKET_BYTES
        if size >= self._suspect:
            self._suspect = 0
        if any(failed <= size for failed in self._failed):
            if len(self._failed) == FAILURES:
                _log.warning(
                    "%s took a packet of %d bytes: no smaller limit is assumed any more",
                    self._address,
                    size,
                )
            self._failed = tuple(failed for failed in self._failed if failed > size)
            self._pause_seconds = FIRST_PAUSE_SECONDS

    def record_shown(self, topic: str, payload: bytes) -> None:
        """Record what the broker sends: it may be what was under way when a connection broke."""
        lost = self._lost.get(topic)
        if lost is not None and lost[1] == _digest(payload):
            del self._lost[topic]
            self.record_accepted(lost[0])

    def record_kept(self, size: int, *, is_kept: bool) -> None:
        """Record whether a packet that was acknowledged is there for later readers."""
        if not is_kept:
            self._not_kept = min(size, self._not_kept or size)
        elif self._not_kept is not None and size >= self._not_kept:
            self._not_kept = None

    def refuse(self, size: int) -> None:
        """Apply that the broker named a packet of this size as too large."""
        self._is_assumed = False
        self._failed = (size,) * FAILURES
        self._begin_pause()

    def record_break(
        self, under_way: tuple[UnderWay, ...], *, alone: bool, was_too_large: bool, is_named: bool
    ) -> None:
        """Record that the connection broke while these publications were under way.

        ``alone``: nothing else was asked of the broker. ``was_too_large``: it named that reason.
        ``is_named``: it gave another reason, such as that it ends.
        """
        self._stated = BrokerLimits()
        largest = max((message.size for message in under_way), default=0)
        if was_too_large and largest:
            self.refuse(largest)
            return
        if len(under_way) > 1:
            # A broker with 3.1.1 cannot state a Receive Maximum, so any such break may be about it.
            self._under_way = max(1, min(self._under_way, len(under_way)) // 2)
            self._under_way_again_at = self._steady_seconds() + LAST_PAUSE_SECONDS
        self._lost |= {
            # A digest, since documents have up to a megabyte and may never be shown.
            message.topic: (message.size, _digest(message.payload))
            for message in under_way
            if message.size > MIN_PACKET_BYTES
        }
        # A broker that took nothing before may refuse this client, whatever the size.
        is_proof = alone and self._was_small_taken and self.is_suspect(largest)
        if largest > max(self._taken, MIN_PACKET_BYTES) and not is_named:
            self._suspect = max(self._suspect, largest)
            if is_proof:
                self._record_failure(largest)
        elif len(self._failed) == FAILURES:
            self._try_again()

    def _record_failure(self, size: int) -> None:
        self._failed = tuple(sorted((*self._failed, size)))[:FAILURES]
        if len(self._failed) < FAILURES:
            return
        self._is_assumed = True
        _log.warning(
            "%s is assumed to take packets of at most %s bytes: it ended %d connections over a "
            "larger one that was under way alone. It is tried again after %d s: raise %s",
            self._address,
            self.limit,
            FAILURES,
            self._pause_seconds,
            _SET_SIZE,
        )
        self._begin_pause()

    def _begin_pause(self) -> None:
        self._again_at = self._steady_seconds() + self._pause_seconds
        self._pause_seconds = min(2 * self._pause_seconds, LAST_PAUSE_SECONDS)

    def _try_again(self) -> None:
        """Try the larger size again: one more break is enough to refuse it."""
        self._failed = self._failed[:-1]
        self._suspect = max(self._suspect, *self._failed)


class PublishWindow:
    """The places for publications that wait for their acknowledgement, on one connection.

    A broker states its Receive Maximum in CONNACK (MQTT 5, 3.2.2.3.3), and disconnects a client
    that has more unacknowledged. What its caller has given up is unacknowledged all the same. A
    suspect goes alone, after everything else that waits: a break beside a subscription whose answer
    is missing would prove nothing, and might repeat itself for ever.
    """

    def __init__(self, places: int, steady_seconds: Callable[[], float] = time.monotonic) -> None:
        self._places = places
        self._steady_seconds = steady_seconds
        self._taken = 0
        self._subscribing = 0
        """Subscriptions without an answer; they need no place."""
        self._is_exclusive = False
        self._has_ended = False
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._suspects: deque[asyncio.Future[None]] = deque()
        self._progress_at = steady_seconds()

    async def take(self, *, alone: bool) -> None:
        """Wait for a place. Raises ``TimeoutError`` where nothing is acknowledged for too long."""
        turn = asyncio.get_running_loop().create_future()
        queue = self._suspects if alone else self._waiting
        queue.append(turn)
        self._pass_on()
        began = self._steady_seconds()
        try:
            while not turn.done():
                # Checked again before the deadline, because each
                # acknowledgement to others moves it.
                await asyncio.wait({turn}, timeout=PROGRESS_SECONDS / 2)
                idle_seconds = self._steady_seconds() - max(began, self._progress_at)
                if not turn.done() and idle_seconds >= PROGRESS_SECONDS:
                    raise TimeoutError
        except BaseException:
            # Cancelled just when it got its place, which must not be lost.
            if turn.done():
                self.free()
            else:
                queue.remove(turn)
            raise

    def free(self) -> None:
        """Give a place back: its publication was acknowledged, or could not be sent."""
        self._taken -= 1
        self._progress_at = self._steady_seconds()
        self._is_exclusive = False
        self._pass_on()

    def begin_subscription(self) -> None:
        """Record that a subscription was sent; suspects wait for its answer."""
        self._subscribing += 1

    def end_subscription(self) -> None:
        """Record the answer to a subscription."""
        self._subscribing -= 1
        self._progress_at = self._steady_seconds()
        self._pass_on()

    def end_exclusive(self) -> None:
        """Let others pass a suspect that gets no answer."""
        self._is_exclusive = False
        self._pass_on()

    def end(self) -> None:
        """Wake all that wait: the connection has ended."""
        self._has_ended = True
        self._pass_on()

    def _pass_on(self) -> None:
        while self._waiting and (
            self._has_ended or (self._taken < self._places and not self._is_exclusive)
        ):
            self._taken += 1
            self._waiting.popleft().set_result(None)
        while self._suspects and (
            self._has_ended or not (self._taken or self._subscribing or self._waiting)
        ):
            self._taken += 1
            self._is_exclusive = True
            self._suspects.popleft().set_result(None)


def _digest(payload: bytes) -> bytes:
    return hashlib.sha256(payload).digest()
