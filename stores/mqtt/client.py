"""One connection to an MQTT broker, from its beginning to its end: aiomqtt's, with two additions.

aiomqtt leaves out what a broker answers to a publication (the reason codes of MQTT 5), and waits
out its deadline when a broker hangs up instead of accepting. ``extended_client`` extends the
callbacks that it gives to paho; here messages are handed on where they arrive, not through a task
each, and publications end with their reason codes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import aiomqtt
from paho.mqtt.client import MQTT_CLEAN_START_FIRST_ONLY, MQTT_ERR_SUCCESS
from paho.mqtt.subscribeoptions import SubscribeOptions
from typing_extensions import override

from contract.errors import StoreRefused, StoreUnavailable
from stores.certificates import end_of_pem
from stores.mqtt.errors import (
    connect_error,
    end_reason,
    is_about_else,
    is_too_large,
    publish_error,
    subscribe_error,
)
from stores.mqtt.extended_client import ExtendedClient
from stores.mqtt.limits import BrokerLimits, PublishWindow, UnderWay, limits_of, packet_bytes
from stores.settings import read_password

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from stores.mqtt.address import BrokerAddress
    from stores.mqtt.limits import LearnedLimits
    from stores.settings import Mqtt

_ANSWER_SECONDS = 10.0
_NEVER = datetime.max.replace(tzinfo=UTC)
_PROTOCOLS = {"5": aiomqtt.ProtocolVersion.V5, "3.1.1": aiomqtt.ProtocolVersion.V311}


class MqttClient(ExtendedClient):
    """Connects when entered and sends DISCONNECT when left; not to be used again.

    ``take(topic, payload, is_retained)`` is given every message and must neither block nor raise.
    Everything raises ``StoreError``.
    """

    def __init__(
        self,
        address: BrokerAddress,
        mqtt: Mqtt,
        identifier: str,
        will: aiomqtt.Will | None,
        take: Callable[[str, bytes, bool], None],
        learned: LearnedLimits,
    ) -> None:
        self._last_error = _LastError()
        self._address = address
        self._mqtt = mqtt
        self._take = take
        self._learned = learned
        # Until CONNACK states the limits (``_begin_session``).
        self._window = PublishWindow(1)
        self._under_way: dict[int, UnderWay] = {}
        self.limits = BrokerLimits()
        self.granted_qos = 0
        """The QoS that the broker granted to the last subscription."""
        self._acknowledgements: dict[int, asyncio.Future[Any]] = {}
        self.certificate_end = certificate_end(mqtt) if address.is_tls else _NEVER
        """When the certificate ends that this client shows."""
        is_v5 = mqtt.protocol == "5"
        super().__init__(
            address.host,
            address.port,
            username=mqtt.user,
            password=None if mqtt.password_file is None else read_password(mqtt.password_file),
            logger=self._last_error.logger,
            identifier=identifier,
            protocol=_PROTOCOLS[mqtt.protocol],
            will=will,
            # paho raises ``ValueError`` for the option that belongs to the other protocol version.
            clean_session=None if is_v5 else True,
            clean_start=True if is_v5 else MQTT_CLEAN_START_FIRST_ONLY,
            timeout=_ANSWER_SECONDS,
            keepalive=mqtt.keepalive_seconds,
            tls_context=tls_of(mqtt) if address.is_tls else None,
            # Otherwise small messages wait 40 ms for earlier
            # acknowledgements, as at the broker (docs/stores.md).
            socket_options=((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),),
        )

    async def __aenter__(self) -> Self:
        entering = asyncio.ensure_future(super().__aenter__())
        try:
            await asyncio.shield(entering)
        except aiomqtt.MqttError as error:
            self._hang_up()
            # The cause of the break is more useful than the break itself.
            raise connect_error(
                self._address, self._failure or error, self._last_error.text
            ) from None
        except asyncio.CancelledError:
            # A thread is connecting, and the loop must not end before it.
            self._abandon_connecting()
            await asyncio.wait({entering})
            entering.exception()
            self._hang_up()
            raise
        return self

    async def __aexit__(self, *raised: Any) -> None:
        leaving = asyncio.ensure_future(super().__aexit__(*raised))
        try:
            # Not awaited itself: it uses ``asyncio.wait_for``, which in Python 3.11 drops a
            # cancellation that meets the result. A connection that is closed would then go on.
            await asyncio.wait({leaving})
        finally:
            leaving.cancel()
            # A broker that does not even take DISCONNECT gets none.
            with contextlib.suppress(aiomqtt.MqttError, OSError, asyncio.CancelledError):
                await leaving
        if self._end.done() and not self._end.cancelled():
            # Where nothing waited for the end, asyncio would log it as an error that was missed.
            self._end.exception()
        self._end_unanswered("the connection was closed")

    async def take_place(self, topic: str, payload: bytes) -> bool:
        """Wait until the broker may be sent this message, which ``publish_now`` then does.

        Returns whether it goes alone: nothing else is sent before its answer, or ``pass_suspect``.
        Raises ``StoreRefused`` where the broker would not take the packet. A broker that
        acknowledges nothing for 10 s while all places are taken is left.
        """
        size = self._size(topic, payload)
        self._learned.check(topic, size)
        alone = self._learned.is_suspect(size)
        await self._take_turn(alone=alone)
        return alone

    def publish_now(self, topic: str, payload: bytes, *, retain: bool) -> asyncio.Future[None]:
        """Hand a message to the connection; done when the broker acknowledged it (QoS 1).

        It has its place (``take_place``). What is handed over first is sent first, subscriptions
        too.
        """
        size = self._size(topic, payload)
        try:
            info = self._paho.publish(topic, payload, 1, retain)
        # paho raises it for more than 268,435,455 bytes and for topics that the protocol forbids.
        except ValueError as error:
            self._window.free()
            raise StoreRefused(f"{self._address}: {topic} cannot be published: {error}") from None
        if info.rc != MQTT_ERR_SUCCESS:
            self._window.free()
            raise self._broken()
        self._under_way[info.mid] = UnderWay(topic, payload, size)
        return self._awaited(info.mid)

    def takes(self, size: int) -> bool:
        """Return whether nothing is known against a packet of this size."""
        limit = self._learned.limit
        return not self._learned.is_suspect(size) and (limit is None or size <= limit)

    def pass_suspect(self) -> None:
        """Let other publications pass one that was sent alone and gets no answer."""
        self._window.end_exclusive()

    async def _take_turn(self, *, alone: bool) -> None:
        try:
            await self._window.take(alone=alone)
        except TimeoutError:
            reason = f"the broker answers none of {len(self._acknowledgements)} requests"
            self._give_up(reason)
            raise StoreUnavailable(f"{self._address}: {reason}") from None

    def _size(self, topic: str, payload: bytes) -> int:
        return packet_bytes(topic, payload, is_v5=self._mqtt.protocol == "5")

    def _give_up(self, reason: str) -> None:
        # Hung up first: that takes away paho's callback, which would end the future, too.
        if not self._end.done():
            self._hang_up()
            self._end.set_exception(aiomqtt.MqttError(reason))

    def subscribe_now(
        self, topics: str, qos: int, *, only_new: bool = False
    ) -> asyncio.Future[None]:
        """Subscribe; done when the broker granted it. What is retained there is sent (again).

        With ``only_new`` it is not, if the protocol has the option (MQTT 5). With MQTT 5 what comes
        later has the flag with which it was published, too.
        """
        if self._mqtt.protocol == "5":
            # Retain Handling (MQTT 5, 3.8.3.1): 0 sends what is
            # retained at each subscription, 2 never.
            handling = 2 if only_new else 0
            options = SubscribeOptions(qos, retainAsPublished=True, retainHandling=handling)
            result, mid = self._paho.subscribe(topics, options=options)
        else:
            result, mid = self._paho.subscribe(topics, qos)
        if result != MQTT_ERR_SUCCESS or mid is None:
            raise self._broken()
        self._window.begin_subscription()
        return self._awaited(mid)

    async def subscribe_in_turn(
        self, topics: str, qos: int, *, only_new: bool = False
    ) -> asyncio.Future[None]:
        """Subscribe as ``subscribe_now`` does, but not beside a publication that goes alone."""
        await self._take_turn(alone=False)
        try:
            return self.subscribe_now(topics, qos, only_new=only_new)
        finally:
            self._window.free()

    def unsubscribe_now(self, topics: str) -> None:
        """Take a subscription back, without waiting for the answer."""
        self._paho.unsubscribe(topics)

    @property
    def names_limits(self) -> bool:
        """Whether the broker reports what it does not accept (MQTT 5)."""
        return self._mqtt.protocol == "5"

    @property
    def has_ended(self) -> bool:
        """Whether the connection has ended."""
        return self._end.done()

    async def ended(self) -> str:
        """Wait for the end of the connection; return its reason."""
        await asyncio.wait({self._end})
        error = self._end.exception()
        reason = self._last_error.text or end_reason(error)
        self._learned.record_break(
            tuple(self._under_way.values()),
            alone=len(self._acknowledgements) == 1,
            was_too_large=is_too_large(getattr(error, "rc", None)),
            is_named=is_about_else(error),
        )
        self._end_unanswered(f"the connection broke: {reason}")
        return reason

    def _end_unanswered(self, reason: str) -> None:
        self._window.end()
        for waiting in self._acknowledgements.values():
            if not waiting.done():
                waiting.set_exception(StoreUnavailable(reason))
                # A caller that gave up waiting does not read it any more.
                waiting.exception()
        self._acknowledgements.clear()

    def _awaited(self, mid: int) -> asyncio.Future[None]:
        future = asyncio.get_running_loop().create_future()
        self._acknowledgements[mid] = future
        return future

    def _broken(self) -> StoreUnavailable:
        return StoreUnavailable(f"{self._address}: the connection is broken")

    def _acknowledge(self, mid: int, error: Exception | None) -> None:
        future = self._acknowledgements.pop(mid, None)
        # A caller that was cancelled or ran into its deadline; the broker answers all the same.
        if future is None or future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    # From here on: what paho calls, in the loop's thread.

    @override
    def _take_message(self, message: Any) -> None:
        try:
            topic = message.topic
        except UnicodeDecodeError:
            return  # No topic of ours; the protocol forbids it.
        self._learned.record_shown(topic, message.payload)
        self._take(topic, message.payload, bool(message.retain))

    @override
    def _end_publication(self, mid: int, reason_code: Any) -> None:
        sent = self._under_way.pop(mid, None)
        if sent is None:
            return
        error = publish_error(self._address, reason_code)
        if is_too_large(reason_code):
            self._learned.refuse(sent.size)
        elif error is None:
            self._learned.record_accepted(sent.size)
        self._acknowledge(mid, error)
        self._window.free()

    @override
    def _end_subscription(self, mid: int, reason_codes: Any) -> None:
        self._window.end_subscription()
        self.granted_qos = max((code.value for code in reason_codes), default=0)
        self._acknowledge(mid, subscribe_error(self._address, reason_codes))

    @override
    def _begin_session(self, properties: Any) -> None:
        self.limits = limits_of(properties)
        self._window = self._learned.record_connection(self.limits)


class _LastError(logging.Handler):
    """Keeps what paho would log as an error: the only place where it shows what a peer sent."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.text = ""
        self.logger = logging.Logger("mqtt", logging.ERROR)
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()


class _TlsSocket(ssl.SSLSocket):
    """paho forgets to close one that is not accepted."""

    def do_handshake(self, block: bool = False) -> None:
        try:
            super().do_handshake(block)
        except BaseException:
            self.close()
            raise


def certificate_end(mqtt: Mqtt) -> datetime:
    """Return when the certificate in the client's file ends; never without one.

    Raises ``OSError``.
    """
    if mqtt.certificate_file is None:
        return _NEVER
    try:
        return end_of_pem(mqtt.certificate_file.read_text("ascii", "ignore"))
    except ValueError:
        return _NEVER  # what is no certificate is refused where it is loaded


def tls_of(mqtt: Mqtt) -> ssl.SSLContext:
    """Return how a broker is judged, and what it is shown. Raises ``OSError``, ``ssl.SSLError``."""
    context = ssl.create_default_context(cafile=mqtt.ca_file)
    context.sslsocket_class = _TlsSocket
    if mqtt.certificate_file is not None:
        # Without a password an encrypted key would be asked for on the terminal.
        context.load_cert_chain(mqtt.certificate_file, mqtt.key_file, password="")
    return context
