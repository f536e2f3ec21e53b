"""``fault.Fault``: pushes faults of jobs and answers queries (``docs/spec/clusterd.md#5.4``).

Faults of a job may end while no replica serves clients. A subscriber that received such a fault
from the leader before would hold it for ever, as a job without faults is in no other message. So
recoveries are remembered for ten minutes, and sent to new subscribers.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

from aggregator.grpc.call import Context, end_stream, refuse, streaming, unary
from aggregator.grpc.interfaces import CLUSTER, NORMAL
from aggregator.grpc.subscriptions import MAX_ID_BYTES, Subscriber, SubscriberLog, Subscriptions
from aggregator.grpc.wire_messages import fault_signal, large_fault_signal
from contract.wire import fault_pb2 as wire
from pacing.token_bucket import TokenBucket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from aggregator.grpc.interfaces import FaultMsgSignal, JobFaultLookup
    from aggregator.grpc.subscriptions import SubscriberWorkqueue
    from service.clock import Clock

RECOVERIES_KEPT_MS = 600_000
"""Clients whose leader was lost come back within two minutes as a rule."""

MAX_RECOVERIES = 10_000
"""Beyond that the oldest is forgotten."""


class Recoveries:
    """Recoveries that subscribers may have missed. Times are steady milliseconds."""

    def __init__(self, faults: JobFaultLookup) -> None:
        self._faults = faults
        self._ill: dict[str, bool] = {}
        """Jobs and MindIE's jobIDs with faults, each with whether it is a job."""
        self._over: dict[str, tuple[int, bool]] = {}

    def record(self, jobs: Iterable[str], now_ms: int, *, sent: bool) -> None:
        """Record jobs whose message changed; ``sent``: subscribers received it."""
        for job in jobs:
            message = self._faults.message(job)
            if message is not None and message.signal_type != NORMAL:
                self._ill[job] = job in self._faults.faulty()
                self._over.pop(job, None)
                continue
            is_job = self._ill.pop(job, None)
            if is_job is None or sent:
                continue
            self._over[job] = now_ms, is_job
            while len(self._over) > MAX_RECOVERIES:
                del self._over[next(iter(self._over))]

    def of(self, job: str, now_ms: int) -> Iterator[str]:
        """Yield the job, if its recovery may have been missed."""
        self._forget(now_ms)
        if job in self._over:
            yield job

    def of_all(self, now_ms: int) -> Iterator[str]:
        """Yield those of all missed recoveries that are jobs."""
        self._forget(now_ms)
        return (job for job, (_, is_job) in self._over.items() if is_job)

    def _forget(self, now_ms: int) -> None:
        while self._over:
            oldest = next(iter(self._over))
            if self._over[oldest][0] + RECOVERIES_KEPT_MS > now_ms:
                return
            del self._over[oldest]


NAME = "fault.Fault"
_REGISTERED = wire.Status(code=0, info="register success")
_QUERIES_PER_SECOND, _QUERY_BURST, _MAX_QUERIES_WAITING = 10, 10, 50
_ID_BYTES = range(8, 129)
FOUND = 200
MANY = 500
"""The message about no more ill nodes is always the newest."""

HOLDS_MS = 3000
"""So old may one about more nodes be, as upstream's is."""

_HAN = re.compile("[\u4e00-\u9fa5]")


class _ClusterMessage:
    """The message about the whole cluster, made once for all pending requests.

    Of ten thousand ill nodes it takes from a tenth to half a second to make, and every client may
    request it ten times a second. Other tasks run meanwhile.
    """

    def __init__(self, faults: JobFaultLookup, clock: Clock) -> None:
        self._faults = faults
        self._clock = clock
        self._making = asyncio.Lock()
        self._of: FaultMsgSignal | None = None
        self._made_ms = 0
        self._answer = wire.FaultQueryResult()

    async def answer(self) -> wire.FaultQueryResult:
        """Return the message about the whole cluster as it is now."""
        async with self._making:
            message, now_ms = self._faults.cluster(), self._clock().steady_ms
            if not self._holds(message, now_ms):
                signal = await large_fault_signal(CLUSTER, message)
                self._answer = wire.FaultQueryResult(code=FOUND, info="Succeed", faultSignal=signal)
                self._of, self._made_ms = message, now_ms
            return self._answer

    def _holds(self, message: FaultMsgSignal, now_ms: int) -> bool:
        if message is self._of:
            return True
        is_young = self._of is not None and now_ms < self._made_ms + HOLDS_MS
        return is_young and len(message.nodes) > MANY


class FaultService:
    """Pushes to each subscriber what changed since its last message.

    ``subscriptions_changed`` receives each client that subscribes or leaves.
    """

    def __init__(
        self,
        faults: JobFaultLookup,
        clock: Clock,
        subscriptions_changed: Callable[[Subscriber], None],
    ) -> None:
        self.subscriptions = Subscriptions()
        self.sent = 0
        self._faults = faults
        self._cluster = _ClusterMessage(faults, clock)
        self._recoveries = Recoveries(faults)
        self._clock = clock
        self._log = SubscriberLog("faults", clock)
        self._subscriptions_changed = subscriptions_changed
        self._queries = TokenBucket(_QUERY_BURST, _QUERIES_PER_SECOND)

    def methods(self, bucket: TokenBucket) -> dict[str, Any]:
        """Return the methods by name, as gRPC needs them."""
        request_shape = wire.ClientInfo
        return {
            "Register": unary(
                f"/{NAME}/Register", request_shape, self._register, bucket, self._clock
            ),
            "GetFaultMsgSignal": unary(
                f"/{NAME}/GetFaultMsgSignal", request_shape, self._get, bucket, self._clock
            ),
            "SubscribeFaultMsgSignal": streaming(request_shape, self._subscribe),
        }

    def changed(self, jobs: Iterable[str], *, serves: bool) -> None:
        """Push the changes of these jobs to their subscribers.

        Called when ``JobFaultLookup`` has other faults of them, or they came or went. ``serves``:
        clients can subscribe now.
        """
        jobs = tuple(jobs)
        self._recoveries.record(jobs, self._clock().steady_ms, sent=serves)
        everywhere = self.subscriptions.listening(CLUSTER)
        for job in jobs:
            for workqueue in (*self.subscriptions.listening(job), *everywhere):
                workqueue.add(job)

    async def _client(self, request: wire.ClientInfo, context: Context) -> Subscriber:
        if not request.role:
            await refuse(context, "the role is empty")
        client = Subscriber(request.jobId or CLUSTER, request.role)
        for name, text in zip(("jobId", "role"), client, strict=True):
            if len(text.encode()) > MAX_ID_BYTES:
                await refuse(context, f"the {name} is longer than {MAX_ID_BYTES} bytes")
        return client

    async def _register(self, request: wire.ClientInfo, context: Context) -> wire.Status:
        client = await self._client(request, context)
        now_ms = self._clock().steady_ms
        if not self.subscriptions.is_registered(client, now_ms):
            if not self.subscriptions.has_room(client, now_ms):
                await refuse(context, f"jobId={client.job}: too many are served already")
            if client.job != CLUSTER and not self._faults.knows(*client):
                await refuse(context, f"jobId={client.job}: there is no such job")
        self.subscriptions.register(client, now_ms)
        return _REGISTERED

    async def _subscribe(self, request: wire.ClientInfo, context: Context) -> None:
        client = await self._client(request, context)
        if not self.subscriptions.is_registered(client, self._clock().steady_ms):
            await refuse(context, f"jobId={client.job} role={client.role} is not registered")
        workqueue = self.subscriptions.subscribe(client)
        self._log.subscribed(client)
        self._subscriptions_changed(client)
        try:
            missed = tuple(self._missed(client))
            of_all = client.job == CLUSTER
            for job in (*self._faults.faulty(), *missed) if of_all else (client.job,):
                workqueue.add(job)
            await self._push(client, workqueue, context, missed)
            await end_stream(context, workqueue.closed)
        finally:
            self.subscriptions.end(client, workqueue)
            self._log.ended(client, workqueue.closed)
            self._subscriptions_changed(client)

    def _missed(self, client: Subscriber) -> Iterator[str]:
        """Return jobs that an earlier leader may have reported ill to this client, and that are not
        now.
        """
        now_ms = self._clock().steady_ms
        if client.job == CLUSTER:
            return self._recoveries.of_all(now_ms)
        return self._recoveries.of(client.job, now_ms)

    async def _push(
        self,
        client: Subscriber,
        workqueue: SubscriberWorkqueue,
        context: Context,
        missed: Iterable[str],
    ) -> None:
        sent: dict[str, object] = dict.fromkeys(missed, "a message of another leader")
        """The last message of each job with which something is wrong."""
        while (job := await workqueue.pop()) is not None:
            message = self._faults.message(job)
            if client.job == CLUSTER and (message is None or job not in self._faults.faulty()):
                # A job that went is in no message about the whole cluster, and of MindIE's jobID
                # the
                # jobs below it.
                was = sent.pop(job, None)
                if message is None or was is None:
                    continue
                await self._send(context, job, None)
            elif message is None or message.signal_type == NORMAL:
                if sent.pop(job, None) is not None:
                    await self._send(context, job, None)
            elif sent.get(job) != message:
                sent[job] = message
                await self._send(context, job, message)

    async def _send(self, context: Context, job: str, message: FaultMsgSignal | None) -> None:
        await context.write(fault_signal(job, message))
        self.sent += 1

    async def _get(self, request: wire.ClientInfo, context: Context) -> wire.FaultQueryResult:
        now_ms = self._clock().steady_ms
        if self._queries.wait_ms(now_ms, 1 - _MAX_QUERIES_WAITING):
            await refuse(context, "rate limited: too many requests, try again later")
        wait_ms = self._queries.wait_ms(now_ms)
        # The token is taken before the wait, so that queries are answered in order of arrival.
        self._queries.take()
        if wait_ms:
            await asyncio.sleep(wait_ms / 1000)
        job = request.jobId
        if not job:
            return await self._cluster.answer()
        if len(job.encode()) not in _ID_BYTES or _HAN.search(job) is not None:
            await refuse(context, f"job with jobId: {job} is invalid")
        message = self._faults.message(job)
        if message is None:
            info = f"job with jobId: {job} not found fault info"
            return wire.FaultQueryResult(code=FOUND, info=info)
        return wire.FaultQueryResult(
            code=FOUND, info="all info returned", faultSignal=fault_signal(job, message)
        )
