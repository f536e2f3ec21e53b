"""The retries that the scheduler has written for each job (``docs/spec/consumers.md#1.14``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from contract import scheduling

if TYPE_CHECKING:
    from collections.abc import Iterable

    from advisor.snapshot import StoredConfigMap


class _Retry(msgspec.Struct):
    times: int = msgspec.field(default=0, name="Times")


_retries = msgspec.json.Decoder(dict[str, _Retry])


def written_retries(configmaps: Iterable[StoredConfigMap]) -> dict[str, int] | None:
    """Return what is left by job, as ``<namespace>/<PodGroup>``; ``None`` where nothing is written.

    What cannot be read counts as not written.
    """
    place = (scheduling.SCHEDULER_NAMESPACE, scheduling.FAULT_CONFIGMAP)
    for config_map in configmaps:
        if (config_map.namespace, config_map.name) == place:
            try:
                retries = _retries.decode(config_map.data[scheduling.REMAIN_RETRY_KEY])
            except (msgspec.MsgspecError, UnicodeError, RecursionError, KeyError):
                return None
            return {key: retry.times for key, retry in retries.items()}
    return None
