"""The one connection of a store to its broker: kept up, and shared by all parts of the store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import time
import uuid
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeAlias

from contract.errors import StoreError, StoreForbidden, StoreUnavailable
from pacing.abandonable_thread import AbandonableThread
from pacing.backoff import Backoff
from pacing.waiting import shared_pause
from stores.interruption import Interrupted
from stores.mqtt.client import MqttClient, certificate_end
from stores.mqtt.limits import LearnedLimits
from stores.mqtt.session import Received, Session, Sink

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import aiomqtt

    from stores.mqtt.address import BrokerAddress
    from stores.settings import Mqtt

_log = logging.getLogger(__name__)

_MAX_PAUSE_SECONDS = 3.0
_STEADY_SECONDS = 5.0
"""A connection that breaks sooner was none: the next attempt waits longer."""
_IDLE_SECONDS = 10.0
"""So long the requests of a connection may take that a newer certificate ends."""
_RENEWAL = timedelta(hours=1)
"""A certificate with less time left is replaced by a newer one of its file."""
_RENEWAL_POLL_SECONDS = 60.0
"""How often the file of such a certificate is looked at."""
_DISK_SECONDS = 10.0


class Subscribed(NamedTuple):
    """From here on messages are received; those that are retained come (again)."""


BrokerEvent: TypeAlias = Received | Subscribed | Interrupted


class BrokerConnection:
    """Connects at the first use, and again whenever it breaks, until it is closed.

    ``will`` is asked at each attempt what the broker is to publish when the connection breaks, with
    the identifier of the attempt.
    """

    def __init__(
        self,
        address: BrokerAddress,
        mqtt: Mqtt,
        node: str | None,
        will: Callable[[], aiomqtt.Will | None] = lambda: None,
    ) -> None:
        self._address = address
        self._mqtt = mqtt
        self._node = node
        self._will = will
        self.learned = LearnedLimits(address)
        """What the broker takes."""
        self._lack = ""
        self.largest = 0
        """The bytes of the largest document that was published."""
        # Not the node's name alone: two agents of one name would throw each other out for ever.
        self._identifier = f"npu-vigil-{node or 'cluster'}-{uuid.uuid4().hex[:8]}"
        self._task: asyncio.Task[NoReturn] | None = None
        self._session: Session | None = None
        self._error: StoreError | None = None
        self._changed = asyncio.Event()
        self._unusable = ""
        """Why the newer certificate could not be used."""

    @property
    def address(self) -> BrokerAddress:
        """Where the broker is."""
        return self._address

    async def session(self, *, waits: bool = False) -> Session:
        """Return the connection, if it is up or comes up for the first time.

        Raises ``StoreError`` with why there is none, unless the caller ``waits`` for the next one.
        """
        self._start()
        while self._session is None:
            if self._error is not None and not waits:
                raise self._error
            # Also set when the task ended by a mistake of the program, which ``_start`` raises.
            await self._changed.wait()
            self._start()
        return self._session

    async def publish(self, topic: str, payload: bytes, *, retain: bool) -> None:
        """Publish a message; done when the broker acknowledged it (QoS 1)."""
        session = await self.session()
        await session.publish(topic, payload, retain=retain)

    async def messages(self, topics: str) -> AsyncIterator[BrokerEvent]:
        """Follow a filter of ``contract.topics`` at QoS 1, over interruptions, for ever.

        Begins with ``Subscribed`` or ``Interrupted``. When more than 20,000 messages wait to be
        taken they are dropped, which is an interruption.
        """
        reason = ""
        backoff = Backoff()
        while True:
            try:
                session = await self.session(waits=bool(reason))
                sink = Sink()
                async with session.subscribed((topics,), sink):
                    await session.list_now(topics)
                    backoff.reset()
                    reason = ""
                    yield Subscribed()
                    while True:
                        yield await sink.pop()
            except StoreError as error:
                # One interruption for an outage: later attempts fail for the same reason.
                if str(error) != reason:
                    reason = str(error)
                    yield Interrupted(reason)
            await asyncio.sleep(backoff.next_seconds())

    async def close(self) -> None:
        """Send DISCONNECT to the broker, so that it publishes no last will."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        self._lost(StoreUnavailable(f"{self._address}: the store is closed"))

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._keep(), name=f"connection to {self._address}")
            self._task.add_done_callback(self._ended)

        elif self._task.done() and not self._task.cancelled():
            self._task.result()  # a mistake of the program ends all users of the connection

    def _ended(self, _task: asyncio.Task[NoReturn]) -> None:
        self._session = None
        self._notify()

    async def _keep(self) -> NoReturn:
        backoff = Backoff(last_seconds=_MAX_PAUSE_SECONDS)
        while True:
            session = Session(self._address, self._node)
            try:
                client = MqttClient(
                    self._address,
                    self._mqtt,
                    self._identifier,
                    self._will(),
                    session.dispatch,
                    self.learned,
                )
                async with client:
                    began = time.monotonic()
                    reason = await self._work(session, client)
                if time.monotonic() - began > _STEADY_SECONDS:
                    backoff.reset()
                if reason is None:
                    continue
                self._lost(StoreUnavailable(reason))
            except StoreError as error:
                self._lost(error)
            # Password, CA and key are read anew for each attempt,
            # since an operator may replace them.
            except (OSError, ssl.SSLError, ValueError) as error:
                self._lost(StoreForbidden(f"{self._address}: its files cannot be used: {error}"))
            await asyncio.sleep(backoff.next_seconds())

    async def _work(self, session: Session, client: MqttClient) -> str | None:
        """Work until the connection ends; return the reason of its end.

        ``None``: it can be made anew with a newer certificate.
        """
        reason = f"{self._address}: the connection was closed"
        ending = asyncio.create_task(client.ended())
        renewing = asyncio.create_task(self._find_newer_certificate(client.certificate_end))
        try:
            # An agent has each document of its own read back, and a broker has many agents.
            await session.attach_client(client, self.largest if self._node is None else 0)
            if session.lack != self._lack:
                self._lack = session.lack
                _log.warning("%s", self._lack or f"{self._address} has what was missing before")
            is_back = self._error is not None
            self._session, self._error = session, None
            self._notify()
            # Only after a while, so that a connection that breaks again and again fills no log.
            if is_back and not (await asyncio.wait({ending}, timeout=_STEADY_SECONDS))[0]:
                _log.info("%s: connected again", self._address)
            await asyncio.wait({ending, renewing}, return_when=asyncio.FIRST_COMPLETED)
            if not ending.done():
                renewing.result()  # a mistake of the program ends all users of the connection
                reason = f"{self._address}: the connection is made anew with a newer certificate"
                _log.info("%s", reason)
                # From now on callers wait for the next one.
                self._session = None
                await session.wait_until_idle(_IDLE_SECONDS)
                return None
            reason = f"{self._address}: the connection broke: {await ending}"
        finally:
            ending.cancel()
            renewing.cancel()
            session.end(reason)
        return reason

    async def _find_newer_certificate(self, end: datetime) -> None:
        """Return once the certificate that ends then has a successor that the broker accepts.

        It is not looked for before the last hour.
        """
        reading: AbandonableThread[datetime] | None = None
        while True:
            await asyncio.sleep(shared_pause(_RENEWAL_POLL_SECONDS))
            # A disk that hangs keeps one thread.
            if end - datetime.now(UTC) > _RENEWAL or (reading is not None and reading.is_stuck):
                continue
            reading = AbandonableThread(partial(certificate_end, self._mqtt), "client certificate")
            with contextlib.suppress(OSError, TimeoutError):
                if await reading.result(_DISK_SECONDS) > end and await self._accepts_files():
                    return

    async def _accepts_files(self) -> bool:
        """Return whether the broker accepts a client with the files of now.

        Files may be half replaced, and the connection that works must not end for them.
        """
        try:
            trial = MqttClient(
                self._address,
                self._mqtt,
                f"{self._identifier}-trial",
                None,
                lambda *_: None,
                LearnedLimits(self._address),
            )
            async with trial:
                self._unusable = ""
                return True
        except (StoreError, OSError, ssl.SSLError, ValueError) as error:
            if str(error) != self._unusable:
                self._unusable = str(error)
                _log.warning("%s: the newer certificate cannot be used: %s", self._address, error)
        return False

    def _lost(self, error: StoreError) -> None:
        self._session = None
        self._error = error
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
