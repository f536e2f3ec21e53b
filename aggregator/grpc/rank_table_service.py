"""``config.Config``: the global rank table of a MindIE service (``docs/spec/clusterd.md#5.5``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aggregator.grpc.call import Context, end_stream, refuse, streaming, unary
from aggregator.grpc.subscriber_log import SubscriberLog
from aggregator.grpc.subscriptions import LONGEST_ID_BYTES, Subscriber, Subscriptions
from contract.wire import config_pb2 as wire

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aggregator.grpc.interfaces import RankTableLookup
    from pacing.token_bucket import TokenBucket
    from service.clock import Clock


NAME = "config.Config"
_REGISTERED = wire.Status(code=0, info="register success")
_ONE = ""
"""A jobID has one client here: upstream does not look at its role."""


class RankTableService:
    """Pushes the table of a jobID when it is whole, and again when it changed."""

    def __init__(self, tables: RankTableLookup, clock: Clock) -> None:
        self.subscriptions = Subscriptions()
        self.sent = 0
        self._tables = tables
        self._clock = clock
        self._log = SubscriberLog("its rank table", clock)

    def methods(self, bucket: TokenBucket) -> dict[str, Any]:
        """Return the methods by name, as gRPC needs them."""
        asked = wire.ClientInfo
        return {
            "Register": unary(f"/{NAME}/Register", asked, self._register, bucket, self._clock),
            "SubscribeRankTable": streaming(asked, self._subscribe),
        }

    def changed(self, jobs: Iterable[str]) -> None:
        """Queue the jobIDs whose tables changed, came or went."""
        for job in jobs:
            for workqueue in self.subscriptions.listening(job):
                workqueue.add(job)

    async def _register(self, request: wire.ClientInfo, context: Context) -> wire.Status:
        client = Subscriber(request.jobId, _ONE)
        if len(client.job.encode()) > LONGEST_ID_BYTES:
            await refuse(context, f"the jobId is longer than {LONGEST_ID_BYTES} bytes")
        now_ms = self._clock().steady_ms
        if not self.subscriptions.has_room(client, now_ms):
            await refuse(context, f"jobId={client.job}: too many are served already")
        self.subscriptions.register(client, now_ms)
        return _REGISTERED

    async def _subscribe(self, request: wire.ClientInfo, context: Context) -> None:
        client = Subscriber(request.jobId, _ONE)
        if not self.subscriptions.is_registered(client, self._clock().steady_ms):
            await refuse(context, f"jobId={client.job} role={request.role} is not registered")
        workqueue = self.subscriptions.subscribe(client)
        self._log.subscribed(client)
        try:
            workqueue.add(client.job)
            sent: str | None = None
            while (job := await workqueue.pop()) is not None:
                text = self._tables.text(job)
                if text is not None and text != sent:
                    sent = text
                    await context.write(wire.RankTableStream(jobId=job, rankTable=text))
                    self.sent += 1
            await end_stream(context, workqueue.closed)
        finally:
            self.subscriptions.end(client, workqueue)
            self._log.ended(client, workqueue.closed)
