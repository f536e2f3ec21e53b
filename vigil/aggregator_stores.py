"""The stores of an aggregator, opened for a verb that changes what is in them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stores.address import open_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from aggregator.config import AggregatorConfiguration
    from stores.base import Store


@dataclass(frozen=True)
class Stores:
    """Those that the aggregator reads, and those that it publishes to without reading them."""

    read: tuple[Store, ...]
    published: tuple[Store, ...]

    @property
    def all(self) -> tuple[Store, ...]:
        """Return those that are read, then the others."""
        return (*self.read, *self.published)


@asynccontextmanager
async def open_stores(
    configuration: AggregatorConfiguration, *, by_operator: bool = False
) -> AsyncIterator[Stores]:
    """Open the stores of an aggregator, and close them behind the block.

    ``by_operator`` is that of ``open_store``. Raises ``ConfigurationError``.
    """

    def open_all(urls: Iterable[str]) -> tuple[Store, ...]:
        return tuple(
            open_store(
                url,
                configuration.kubeconfig,
                mqtt=configuration.mqtt,
                others_may_write=configuration.directory.others_may_write,
                by_operator=by_operator,
            )
            for url in urls
        )

    read = configuration.read_urls
    stores = Stores(
        open_all(read), open_all(url for url in configuration.publish_urls if url not in read)
    )
    try:
        yield stores
    finally:
        for store in stores.all:
            await store.close()
