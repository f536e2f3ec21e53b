"""Run the process of ``vigil aggregator``: start it by its configuration, end it by a signal."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from aggregator.api.routes import application
from aggregator.config import SOCKET_NAME
from aggregator.daemon import Aggregator
from aggregator.notify.history import ClusterHistory
from service.clock import system_clock
from service.election.identity import Identity
from service.election.leadership import leadership
from service.http.connections import ListenerLimits
from service.log.setup import flush_log, set_up_logging
from service.open_file_limit import raise_soft_limit
from service.pages.daemon_pages import serving
from service.pages.settings import pages_tls, pages_users
from service.tasks import until_stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aggregator.config import AggregatorConfiguration
    from aggregator.plugin import Plugin
    from stores.kubernetes_api.access import TokenReviews

_log = logging.getLogger(__name__)

# A clean end of connections is a courtesy: systemd and kubelet send SIGKILL if the process does not
# end.
_CLOSE_SECONDS = 2.0
# So many objects more than at the last collection begin one. Python's 700 are for small programs.
_START_THRESHOLD = 100_000


def run(configuration: AggregatorConfiguration, plugins: Iterable[Plugin] = ()) -> None:
    """Run the daemon until SIGTERM or SIGINT. Raises ``VigilError``."""
    set_up_logging(configuration.log_format)
    raise_soft_limit()
    try:
        asyncio.run(_run(configuration, plugins, _collecting_seldom()))
    finally:
        # Lines are written by a thread, which ends with the process.
        flush_log()


async def _run(
    configuration: AggregatorConfiguration,
    plugins: Iterable[Plugin] = (),
    on_begun: Callable[[], None] = lambda: None,
) -> None:
    from stores.address import open_store

    # A ``dict`` keeps the order; a store that is read and written gets one client, and so one pool
    # of connections.
    urls = dict.fromkeys((*configuration.read_urls, *configuration.publish_urls))
    stores = {
        url: open_store(
            url,
            configuration.kubeconfig,
            mqtt=configuration.mqtt,
            others_may_write=configuration.directory.others_may_write,
        )
        for url in urls
    }
    channels = {
        url: channel
        for url in configuration.read_urls
        if (channel := stores[url].channel) is not None
    }
    identity = Identity(configuration.state_dir, group_may_read=_has_documents(configuration))
    history = ClusterHistory(configuration.state_dir, channels, system_clock)
    lead = leadership(
        [stores[url] for url in configuration.publish_urls] if configuration.leader.elect else (),
        identity.name,
        configuration.leader.lease_seconds,
        system_clock,
    )
    aggregator = Aggregator(
        configuration,
        stores,
        history,
        lead,
        plugins=plugins,
        on_begun=on_begun,
    )
    if aggregator.public_faults.namespaces.takes_all:
        setting = aggregator.public_faults.namespaces.setting
        _log.info("public faults are taken from all namespaces; %s names those to trust", setting)
    pages = application(aggregator.queries, configuration.pages.agent_url or "")
    reviews = _token_reviews(configuration)
    tokens = None
    if reviews is not None:
        # Imported late: most aggregators serve their pages without tokens.
        from service.login.tokens import TokenChecks

        tokens = TokenChecks(reviews, configuration.pages.token_audience)
    try:
        async with serving(
            pages,
            configuration.listen,
            configuration.state_dir,
            # Another aggregator in this directory keeps its socket.
            socket_name=SOCKET_NAME if identity.has_place else None,
            limits=ListenerLimits(configuration.pages.max_connections),
            host_names=configuration.pages.host_names,
            tls=pages_tls(configuration.pages),
            users=pages_users(configuration.pages),
            tokens=tokens,
        ):
            await until_stopped(aggregator.run())
            _log.info("received a signal, stopping")
    finally:
        # A store that does not answer must not keep the process from its end.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                for store in stores.values():
                    await store.close()
                if reviews is not None:
                    await reviews.close()
        identity.close()


def _token_reviews(configuration: AggregatorConfiguration) -> TokenReviews | None:
    """Return what reviews tokens of clients of the pages; ``None`` without that option."""
    if not configuration.pages.tokens:
        return None
    from stores.address import kubeconfig_files
    from stores.kubernetes_api.access import TokenReviews

    return TokenReviews(kubeconfig_files(configuration.kubeconfig))


def _collecting_seldom() -> Callable[[], None]:
    """Let the garbage collector look at little while the start reads everything.

    Return what ends that. With 10,000 nodes a full collection stops all threads for 0.1 to 0.2 s.
    It is due every few seconds: while documents are read, and later where much is made and dropped.
    What was read at the start stays, so it is not looked at again.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(_START_THRESHOLD, *thresholds[1:])

    def end() -> None:
        gc.set_threshold(*thresholds)
        gc.freeze()

    return end


def _has_documents(configuration: AggregatorConfiguration) -> bool:
    """Return whether a directory store is in the state directory, which a group may then read."""
    state_dir = configuration.state_dir.absolute()
    directories = [
        Path(url.removeprefix("directory:")).expanduser().absolute()
        for url in (*configuration.read_urls, *configuration.publish_urls)
        if url.startswith("directory:")
    ]
    return any(directory.is_relative_to(state_dir) for directory in directories)
