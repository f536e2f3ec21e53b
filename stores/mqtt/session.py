"""One connection to a broker, from its beginning to its end.

Nothing outlives it: subscriptions and publications that wait for their acknowledgement end with
``StoreUnavailable``, and their callers begin again on the next one. Sessions are clean, so a broker
keeps nothing for a client that is away: what is retained is sent again, and no old publication
comes late.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Protocol

from contract.errors import StoreError, StoreForbidden, StoreUnavailable
from contract.plural import plural
from contract.topics import CLUSTER_ECHO, ECHO_BY_WILDCARD, echo_topic, filters_of
from pacing.waiting import wait_for_event
from stores.mqtt.errors import ended_at_first, first_refused, hung_up_at_retained
from stores.mqtt.limits import (
    no_qos,
    no_retain,
    no_wildcards,
    packet_bytes,
    small_retained,
    unusable,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from stores.mqtt.address import BrokerAddress
    from stores.mqtt.client import MqttClient

_ANSWER_SECONDS = 10.0
_LATER_SECONDS = 0.5
_RETAINED_TRIES = 3
_LATE_SECONDS = 0.5
"""So long a retained message may come after a later one, before it counts as missing."""
# HiveMQ is late now and then only, so one message in order proves nothing (decision 52).
_ORDER_TRIES = 10
# The wait of decision 52 for brokers without an order between topics.
_QUIET_SECONDS = 2.0
_MAX_QUIET_SECONDS = 8.0
_SHOWN_SECONDS = 2.0
"""A retained message is sent at once after a subscription, by a busy broker later."""

MAX_WAITING = 20_000
"""Messages that wait for a reader, before it is interrupted."""


class Received(NamedTuple):
    """A message; ``is_retained`` if the broker had kept it, or with MQTT 5 keeps it from now on."""

    topic: str
    payload: bytes
    is_retained: bool


class Sink:
    """The messages that wait for their reader; dropped when too many wait or the session ends."""

    def __init__(self) -> None:
        self._waiting: deque[Received] = deque()
        self._more = asyncio.Event()
        self._end = ""

    def receive(self, message: Received) -> None:
        """Add a message."""
        if self._end:
            return
        if len(self._waiting) >= MAX_WAITING:
            dropped = len(self._waiting) + 1
            self.end(
                f"{plural(dropped, 'message')} dropped: they came faster than they were processed"
            )
            return
        self._waiting.append(message)
        self._more.set()

    def end(self, reason: str) -> None:
        """End it: nothing more comes."""
        self._waiting.clear()
        # The first reason stays: a sink that was full ends before its connection does.
        self._end = self._end or reason
        self._more.set()

    async def pop(self) -> Received:
        """Return the next one. Raises ``StoreUnavailable`` when there are no more."""
        while not self._waiting:
            if self._end:
                raise StoreUnavailable(self._end)
            self._more.clear()
            await self._more.wait()
        return self._waiting.popleft()


class MessageSink(Protocol):
    """Receives messages; must not block."""

    def receive(self, message: Received) -> None:
        """Receive one message."""

    def end(self, reason: str) -> None:
        """End it: nothing more comes."""


class Session:
    """A connection that is up until ``end``."""

    def __init__(self, address: BrokerAddress, node: str | None) -> None:
        self._address = address
        self._node = node
        self._echo = echo_topic(node)
        self._sinks: dict[str, list[MessageSink]] = {}
        self._echo_name = b""
        self._echoed_first: asyncio.Future[bool] | None = None
        self._kept = b""
        """The message to oneself that is retained."""
        self._copies = 0
        """How often it came."""
        self._is_disturbed = False
        """Whether another client with the same topic wrote it meanwhile."""
        self._clears = 0
        """The own empty messages that have not come back."""
        self._lists = (self._echo,) if node is not None else (ECHO_BY_WILDCARD, self._echo)
        """The filters that must show what is retained; with the last one only some clients work."""
        self.lack = ""
        """The missing part of a broker that is used all the same."""
        self._quiet_seconds = 0.0
        """For so long nothing that is retained may come, before a list counts as complete."""
        self._retained_at = 0.0
        self._listing = asyncio.Lock()
        self._client: MqttClient | None = None
        self._requests = 0
        """Those under way, each of which may send several messages."""
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._end = ""
        self._over = asyncio.Event()

    async def attach_client(self, client: MqttClient, largest: int = 0) -> None:
        """Begin to work on a client that is connected.

        ``largest``: the bytes of the largest document that was published. A client of a whole
        cluster needs such a message by a filter with a wildcard, too.

        Nothing else is under way before a message to oneself has come back. A broker that ends the
        connection over a refused right would take the answers to other messages with it.
        """
        self._client = client
        problem = unusable(self._address, client.limits)
        if problem is not None:
            raise problem
        await self._answer(client.subscribe_now(self._echo, 1), f"subscription to {self._echo}")
        if client.granted_qos < 1:
            raise no_qos(self._address)
        try:
            await self._echo_behind(None)
            await self._demand_retained(client, largest)
        except StoreForbidden:
            raise first_refused(self._address, self._echo, self._node) from None
        except StoreUnavailable:
            if not client.has_ended:
                raise
            raise ended_at_first(self._address, self._echo, self._node) from None

    async def _demand_retained(self, client: MqttClient, largest: int) -> None:
        """Check whether the broker keeps retained messages. Some do not report that they cannot.

        A message to oneself must come twice: as it is published, and with another subscription.
        Other clients with the same topic may clear it meanwhile.
        """
        # An agent subscribes to exact topics only (decision 52).
        if not client.limits.wildcards and self._node is None:
            raise no_wildcards(self._address)
        for _ in range(_RETAINED_TRIES):
            shown = await self._shown_by(client, 0)
            # Only the first filter is enough for this client; a later one shows that messages are
            # retained at all.
            if shown == self._lists[:1]:
                break
        else:
            raise no_wildcards(self._address) if shown else no_retain(self._address)
        # A size that the broker may refuse is not tried here: it
        # would end the connection that all share.
        if not largest or not client.takes(packet_bytes(self._echo, bytes(largest), is_v5=True)):
            return
        for _ in range(_RETAINED_TRIES):
            if await self._shown_by(client, largest) == self._lists[:1]:
                return
            if not self._is_disturbed:
                self.lack = small_retained(self._address, largest)
                return

    async def keeps(self, size: int) -> bool:
        """Return whether the broker keeps a retained message of this size, cleared afterwards."""
        with self._request():
            return bool(await self._shown_by(self._connected, size))

    async def _shown_by(self, client: MqttClient, size: int) -> tuple[str, ...]:
        """Retain a message of this size; return the first filter of ``_lists`` that shows it."""
        self._kept, self._copies = uuid.uuid4().hex.encode().ljust(size, b"."), 0
        self._is_disturbed = False
        await self._retain(client, self._kept)
        shown: tuple[str, ...] = ()
        for topics in self._lists:
            await self._echo_behind(topics)
            if await self._is_shown(2):
                shown = (topics,)
                break
        # Not with the large message: each try would send it once more.
        if shown == (ECHO_BY_WILDCARD,) and not size:
            await self._find_order(ECHO_BY_WILDCARD)
        # The exact filter stays: every list waits for a message at it.
        if self._lists[0] != self._echo:
            client.unsubscribe_now(self._lists[0])
        self._clears += 1
        await self._retain(client, b"")
        return shown

    async def _is_shown(self, copies: int) -> bool:
        """Return whether the retained message to oneself came with the last subscription.

        ``copies`` is how often it then came; the first time it is as published. Brokers that read
        retained messages in the background (HiveMQ) may send it after the message that was
        published behind the subscription. Then no message shows the end of a list (MQTT 5,
        section 4.6, orders the messages of a topic only).
        """
        began = time.monotonic()
        while self._copies < copies and time.monotonic() - began < _LATE_SECONDS:
            await asyncio.sleep(_LATE_SECONDS / 50)
            if self._copies >= copies:
                self._quiet_seconds = _QUIET_SECONDS
        return self._copies >= copies

    async def _find_order(self, topics: str) -> None:
        """Find out whether retained messages come late: such a broker is late now and then."""
        for _ in range(_ORDER_TRIES):
            if self._quiet_seconds:
                return
            copies = self._copies + 1
            await self._echo_behind(topics)
            if not await self._is_shown(copies):
                return  # another client has cleared it

    async def _retain(self, client: MqttClient, payload: bytes) -> None:
        try:
            await self.publish(self._echo, payload, retain=True)
        except StoreUnavailable:
            if client.names_limits or not client.has_ended:
                raise
            raise hung_up_at_retained(self._address, self._echo) from None

    def dispatch(self, topic: str, payload: bytes, is_retained: bool) -> None:
        """Pass a message to the receivers of its topic."""
        if topic == self._echo:
            self._echoed(payload)
            return
        if topic == CLUSTER_ECHO:
            return
        if is_retained:
            self._retained_at = time.monotonic()
        message = Received(topic, payload, is_retained)
        for pattern in filters_of(topic):
            for sink in self._sinks.get(pattern, ()):
                sink.receive(message)

    def end(self, reason: str) -> None:
        """End it: the connection is closed."""
        self._end = reason
        self._client = None
        self._over.set()
        for sinks in self._sinks.values():
            for sink in sinks:
                sink.end(reason)
        if self._echoed_first is not None:
            self._echoed_first.cancel()

    async def publish(self, topic: str, payload: bytes, *, retain: bool) -> None:
        """Publish a message; done when the broker took it."""
        with self._request():
            alone = await self._connected.take_place(topic, payload)
            done = self._connected.publish_now(topic, payload, retain=retain)
            try:
                await self._answer(done, f"publication of {topic}")
            finally:
                # An answer has let others pass already; the next one that goes alone may be on its
                # way.
                if alone and done.cancelled() and self._client is not None:
                    self._client.pass_suspect()

    async def publish_shown(self, topic: str, payload: bytes) -> bool:
        """Publish a retained message; return whether the broker shows it to a new subscription.

        A subscription to the topic is taken back meanwhile, so that the message comes once.
        """
        with self._request():
            return await self._publish_shown(topic, payload)

    async def _publish_shown(self, topic: str, payload: bytes) -> bool:
        shown = Sink()
        is_followed = topic in self._sinks
        if is_followed:
            self._connected.unsubscribe_now(topic)
        try:
            await self.publish(topic, payload, retain=True)
        # Also after a cancellation: otherwise the watch of this
        # document would show nothing any more.
        except BaseException:
            if is_followed and self._client is not None:
                self._client.subscribe_now(topic, 1)
            raise
        async with self.subscribed((topic,), shown):
            granted = await self._connected.subscribe_in_turn(topic, 1)
            await self._answer(granted, f"subscription to {topic}")
            with contextlib.suppress(TimeoutError):
                # A broker that is late with retained messages (``_is_shown``) is late here, too.
                async with asyncio.timeout(_SHOWN_SECONDS + self._quiet_seconds):
                    return (await shown.pop()).payload == payload
        return False

    @contextlib.asynccontextmanager
    async def subscribed(self, filters: tuple[str, ...], sink: MessageSink) -> AsyncIterator[None]:
        """Pass to ``sink`` within the block what ``list_now`` requests and what comes after it."""
        for pattern in filters:
            self._sinks.setdefault(pattern, []).append(sink)
        try:
            yield
        finally:
            for pattern in filters:
                self._sinks[pattern].remove(sink)
                # A broker has one subscription for each filter (MQTT 5, 3.8.4), which several lists
                # and watches share.
                if not self._sinks[pattern]:
                    del self._sinks[pattern]
                    if self._client is not None:
                        self._client.unsubscribe_now(pattern)

    async def list_now(self, topics: str) -> None:
        """Ask for what is retained; done when all of it has been put into the sinks.

        A message to oneself goes out directly behind the subscription, before anything can be
        acknowledged. A broker whose queue for this client has no room left for all that is
        retained has none for that message either: mosquitto, which keeps 1000 messages by
        default, drops both without a word.
        """
        # One list at a time: the message that ends it is recognised by ``_echo_name``, of which
        # there is one.
        with self._request():
            async with self._listing:
                began = time.monotonic()
                await self._echo_behind(topics)
                if self._quiet_seconds:
                    await self._be_quiet(began, is_single="+" not in topics)

    async def _be_quiet(self, began: float, *, is_single: bool) -> None:
        """Wait until nothing that is retained comes any more; ``is_single``: for one message."""
        deadline = time.monotonic() + _MAX_QUIET_SECONDS
        quiet_at = time.monotonic() + self._quiet_seconds
        while (now := time.monotonic()) < min(quiet_at, deadline):
            if is_single and self._retained_at > began:
                return
            await asyncio.sleep(min(_LATE_SECONDS / 5, quiet_at - now))
            quiet_at = max(quiet_at, self._retained_at + self._quiet_seconds)

    async def _echo_behind(self, topics: str | None) -> None:
        """Send a message to oneself, directly behind a subscription if one is given.

        Done when all that is retained there and the message itself came back.
        """
        self._echo_name = uuid.uuid4().hex.encode()
        first = self._echoed_first = asyncio.get_running_loop().create_future()
        # The place comes first: nothing may be between the subscription and the message.
        await self._connected.take_place(self._echo, self._echo_name)
        granted = None if topics is None else self._connected.subscribe_now(topics, 1)
        taken = self._connected.publish_now(self._echo, self._echo_name, retain=False)
        # Nothing waits for it any more if the subscription fails first.
        taken.add_done_callback(lambda done: done.cancelled() or done.exception())
        if granted is not None:
            await self._answer(granted, f"subscription to {topics}")
        await self._answer(taken, f"publication of {self._echo}")
        await self._come_back(first, topics or self._echo)

    def _echoed(self, payload: bytes) -> None:
        if payload == self._kept:
            self._copies += 1
        elif not payload and self._clears:
            self._clears -= 1
        elif not payload.startswith(self._echo_name):
            self._is_disturbed = True
        first = self._echoed_first
        if first is not None and not first.done() and payload.startswith(self._echo_name):
            first.set_result(payload == self._echo_name)

    async def only_new(self, topics: str, qos: int) -> None:
        """Change the QoS of a subscription; retained messages are not sent again."""
        granted = await self._connected.subscribe_in_turn(topics, qos, only_new=True)
        await self._answer(granted, f"subscription to {topics}")

    async def ping(self) -> None:
        """Send a ping; done when the broker answered: it is alive, and so is the way to it.

        The keepalive detects a broker that hangs, or lost packets, only after twice its seconds.
        """
        await self.publish(self._echo, b"", retain=False)

    async def wait_until_idle(self, within_seconds: float) -> None:
        """Wait until no request is under way, at most so long."""
        await wait_for_event(self._is_idle, within_seconds)

    @contextlib.contextmanager
    def _request(self) -> Iterator[None]:
        self._requests += 1
        self._is_idle.clear()
        try:
            yield
        finally:
            self._requests -= 1
            if not self._requests:
                self._is_idle.set()

    async def ended(self) -> str:
        """Wait for the end; return its reason."""
        await self._over.wait()
        return self._end

    async def _come_back(self, first: asyncio.Future[bool], topics: str) -> None:
        sent_at = time.monotonic()
        later = self._echo_name + b" later"
        while not (await asyncio.wait({first}, timeout=_LATER_SECONDS))[0]:
            # As long as retained messages arrive, the message behind them may still come.
            if time.monotonic() - max(sent_at, self._retained_at) > _ANSWER_SECONDS:
                raise StoreForbidden(
                    f"{self._address}: a message to {self._echo} does not come back: the broker's "
                    "access rules must let this client write and read it"
                )
            # Messages keep their order: if this one comes back first, the other one was dropped.
            await self.publish(self._echo, later, retain=False)
        if first.cancelled():
            raise StoreUnavailable(self._end)
        if not first.result():
            raise StoreUnavailable(
                f"{self._address}: the broker dropped a part of what is retained below {topics}: "
                "its queue for a client is too short (mosquitto: set max_queued_messages 1000000)"
            )

    async def _answer(self, future: asyncio.Future[None], request: str) -> None:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await future
        except TimeoutError:
            raise StoreUnavailable(
                f"{self._address}: {request}: no answer within {_ANSWER_SECONDS:.0f} s"
            ) from None
        except StoreError as error:
            # Of the same class, by which callers decide whether another attempt makes sense.
            raise type(error)(f"{request}: {error}") from None

    @property
    def _connected(self) -> MqttClient:
        if self._client is None:
            raise StoreUnavailable(self._end)
        return self._client
