"""Heartbeats on an MQTT broker, and the last will that replaces one when its connection breaks.

A beat and a will name the connection they were made for. A will is about the beats of
its own connection only: one that comes late, when the agent has long been back on another one, is
no news.
"""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from typing import TYPE_CHECKING, Any, NoReturn

import aiomqtt
import msgspec

from contract.documents.write_numbers import text_found
from contract.errors import StoreError, StoreUnavailable
from contract.names import MAX_NODES
from contract.refusal import Reason
from contract.topics import ALL_BEATS, beat_topic, is_beat_topic, node_of
from contract.validation_texts import decode_text
from pacing.backoff import Backoff
from stores.base import Beat
from stores.document_names import check_node_name
from stores.refusals import Refusals

if TYPE_CHECKING:
    from stores.mqtt.connection import BrokerConnection
    from stores.mqtt.session import Received

_MAX_BYTES = 4096
_UNKNOWN_INTERVAL_SECONDS = 5.0
_NAME_LENGTH = 253


class HeartbeatMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """The message at a beat topic. ``beaten_at_ms`` is 0 in a will made before the first beat.

    A will has no ``writes``, and nothing that is wrong with them makes a message no heartbeat.
    """

    node: str
    connection: str = ""
    holder: str = ""
    interval_seconds: float = _UNKNOWN_INTERVAL_SECONDS
    beaten_at_ms: int = 0
    is_broken: bool = False
    blind: bool | None = None
    writes: Any = ""


_decoder = msgspec.json.Decoder(HeartbeatMessage)


class OfAnotherNode(ValueError):
    """The message at a beat topic is a heartbeat of another node."""


def decode_pulse(node: str, payload: bytes) -> HeartbeatMessage:
    """Read a message at the beat topic of ``node``.

    Raises ``ValueError`` with why it is none, ``OfAnotherNode`` where it names another one.
    """
    if len(payload) > _MAX_BYTES:
        raise ValueError(f"it has {len(payload)} bytes, more than {_MAX_BYTES}")
    try:
        pulse = _decoder.decode(payload)
    # msgspec raises the last two, for bytes that are not UTF-8 and
    # for deep nesting, outside of its own errors.
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(decode_text(error)) from None
    if pulse.node != node:
        raise OfAnotherNode(f"it is one of {pulse.node[:_NAME_LENGTH]!r}")
    # A will from before the first beat may have no holder (``LastWill``).
    if not pulse.holder and not pulse.is_broken:
        raise ValueError("it has no holder")
    if not 0 < pulse.interval_seconds < math.inf:
        raise ValueError(f"its interval is {pulse.interval_seconds}")
    return pulse


class LastWill:
    """What the broker publishes of this agent when a connection of it breaks.

    ``to_be`` is the beat that it will make, as far as it is known, for a subscriber that
    receives nothing but the will; without one the will has no holder and is not applied there.
    """

    def __init__(self, node: str, to_be: Beat | None) -> None:
        self._node = node
        self._last = HeartbeatMessage(node)
        if to_be is not None:
            self._last = HeartbeatMessage(node, "", to_be.holder, to_be.interval_seconds)
        self.connection = ""

    def of_next_connection(self) -> aiomqtt.Will:
        """Return the will of a connection that is to be made."""
        self.connection = uuid.uuid4().hex[:12]
        # Without ``writes``: the broker publishes the will later, when these numbers may be old.
        broken = msgspec.structs.replace(
            self._last, connection=self.connection, is_broken=True, writes=""
        )
        # Retained, so that it replaces the beat for an aggregator that subscribes later.
        return aiomqtt.Will(beat_topic(self._node), msgspec.json.encode(broken), qos=1, retain=True)

    def record_beat(self, pulse: HeartbeatMessage) -> None:
        """Record that this beat was made; the next will repeats it."""
        if pulse.node == self._node:
            self._last = pulse


class _ReceivedBeat(msgspec.Struct):
    payload: bytes
    pulse: HeartbeatMessage
    received_at: float
    is_retained: bool = False


class ReceivedHeartbeats:
    """The beats that were received, each with the time when it came."""

    def __init__(self, refusals: Refusals) -> None:
        self._refusals = refusals
        self._received: dict[str, _ReceivedBeat] = {}
        self._listed: set[str] | None = None

    def begin_list(self) -> None:
        """Begin a list: all that is retained comes now."""
        self._listed = set()

    def end_list(self) -> None:
        """Remove the nodes whose beat did not come since the list began."""
        listed, self._listed = self._listed, None
        if listed is not None:
            self._received = {node: beat for node, beat in self._received.items() if node in listed}
            there = {beat_topic(node) for node in listed}
            self._refusals.keep(lambda place: place in there or not is_beat_topic(place))
        # Also beats that came live before a break: whether the node's connection ended or the
        # broker did is not known.
        for beat in self._received.values():
            beat.is_retained = True

    def receive(self, message: Received) -> None:
        """Apply a message."""
        node = node_of(message.topic)
        if node is None:
            problem = "there is no node of this name"
            self._refusals.refuse(message.topic, Reason.UNREADABLE, problem)
            return
        # An empty retained message deletes what is retained (MQTT 5, 3.3.1.3), as ``forget`` does.
        if not message.payload:
            self._received.pop(node, None)
            self._refusals.accept(message.topic)
            return
        if self._listed is not None:
            self._listed.add(node)
        last = self._received.get(node)
        # A new subscription brings the same beat again, which proves nothing about now.
        if last is not None and last.payload == message.payload:
            return
        try:
            pulse = decode_pulse(node, message.payload)
            # Any client with the right to write can make up names of nodes.
            if last is None and len(self._received) >= MAX_NODES:
                raise ValueError(f"there are already {MAX_NODES} nodes")
        except ValueError as error:
            is_foreign = isinstance(error, OfAnotherNode)
            reason = Reason.OTHER_NODE if is_foreign else Reason.UNREADABLE
            self._refusals.refuse(message.topic, reason, f"it is not a valid heartbeat: {error}")
            return
        self._refusals.accept(message.topic)
        self._observe(node, message.payload, pulse, last)

    def _observe(
        self, node: str, payload: bytes, pulse: HeartbeatMessage, last: _ReceivedBeat | None
    ) -> None:
        if pulse.is_broken and last is not None:
            if last.pulse.connection != pulse.connection:
                return
            # The will repeats what was last at the begin of the connection; the last beat is newer.
            pulse = msgspec.structs.replace(last.pulse, is_broken=True)
        self._received[node] = _ReceivedBeat(payload, pulse, time.monotonic())

    def end(self, reason: str) -> None:
        """Do nothing: what was received stays. See ``MessageSink``."""

    def beats(self) -> tuple[Beat, ...]:
        """Return all nodes that beat or beat once."""
        now = time.monotonic()
        return tuple(_beat(beat, now) for beat in self._received.values())

    def beat_of(self, node: str) -> tuple[Beat, ...]:
        """Return the one of ``node``, if there is one.

        A will from before the first beat is none: it may be of an agent that only waited until
        another one with the same name is gone.
        """
        received = self._received.get(node)
        if received is None or (received.pulse.is_broken and not received.pulse.beaten_at_ms):
            return ()
        return (_beat(received, time.monotonic()),)


class BrokerHeartbeats:
    """Makes beats, and subscribes to those of others from the first request for all."""

    def __init__(self, connection: BrokerConnection, will: LastWill | None) -> None:
        self._connection = connection
        self._will = will
        self.refusals = Refusals()
        self._received_beats = ReceivedHeartbeats(self.refusals)
        self._is_complete = False
        self._changed = asyncio.Event()
        self._error: StoreError | None = None
        self._task: asyncio.Task[NoReturn] | None = None

    async def beat(self, beat: Beat) -> None:
        """Publish ``beat``, retained; errors are those of ``Store.beat``."""
        check_node_name(beat.node)
        session = await self._connection.session()
        connection = self._will.connection if self._will is not None else ""
        pulse = HeartbeatMessage(
            node=beat.node,
            connection=connection,
            holder=beat.holder,
            interval_seconds=beat.interval_seconds,
            beaten_at_ms=beat.beaten_at_ms,
            blind=beat.blind,
            writes=beat.writes,
        )
        await session.publish(beat_topic(beat.node), msgspec.json.encode(pulse), retain=True)
        if self._will is not None:
            self._will.record_beat(pulse)

    async def forget(self, node: str) -> None:
        """Take the retained heartbeat of ``node`` out of the broker."""
        check_node_name(node)
        await self._connection.publish(beat_topic(node), b"", retain=True)

    async def beats(self, node: str | None = None) -> tuple[Beat, ...]:
        """Return the received heartbeats, of all nodes or of one, as ``Store.beats`` does."""
        if node is not None:
            check_node_name(node)
            # The subscription to all beats has this one: no request to the broker.
            if self._is_complete:
                return self._received_beats.beat_of(node)
            return await self._ask(node)
        self._start()
        while not self._is_complete:
            if self._error is not None:
                raise self._error
            await self._changed.wait()
            self._start()
        # A node that cannot be received is not silent.
        await (await self._connection.session()).ping()
        return self._received_beats.beats()

    async def close(self) -> None:
        """Unsubscribe."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._follow(), name="heartbeats")
            self._task.add_done_callback(lambda _: self._changed.set())
        elif self._task.done() and not self._task.cancelled():
            self._task.result()  # a mistake of the program: what was received is not what is there

    async def _ask(self, node: str) -> tuple[Beat, ...]:
        received_beats = ReceivedHeartbeats(self.refusals)
        session = await self._connection.session()
        async with session.subscribed((beat_topic(node),), received_beats):
            await session.list_now(beat_topic(node))
        # It was received just now because of the subscription, whatever its age.
        return tuple(
            msgspec.structs.replace(beat, age_ms=None) for beat in received_beats.beat_of(node)
        )

    async def _follow(self) -> NoReturn:
        backoff = Backoff()
        while True:
            try:
                session = await self._connection.session(waits=self._error is not None)
                async with session.subscribed((ALL_BEATS,), self._received_beats):
                    self._received_beats.begin_list()
                    await session.list_now(ALL_BEATS)
                    self._received_beats.end_list()
                    # A beat that is lost in a crowd is followed by the next one. So they do not
                    # wait for acknowledgements, in the queue where documents must find room.
                    await session.only_new(ALL_BEATS, qos=0)
                    backoff.reset()
                    self._log_once(None)
                    raise StoreUnavailable(await session.ended())
            except StoreError as error:
                self._log_once(error)
            await asyncio.sleep(backoff.next_seconds())

    def _log_once(self, error: StoreError | None) -> None:
        self._error = error
        self._is_complete = error is None
        self._changed.set()
        self._changed = asyncio.Event()


def _beat(received: _ReceivedBeat, now: float) -> Beat:
    pulse = received.pulse
    return Beat(
        pulse.node,
        pulse.holder,
        pulse.interval_seconds,
        pulse.beaten_at_ms,
        age_ms=int((now - received.received_at) * 1000),
        is_broken=pulse.is_broken,
        is_retained=received.is_retained,
        blind=pulse.blind,
        writes="" if pulse.is_broken else text_found(pulse.writes),
    )
