"""Switches and retries in the scheduler's ConfigMaps (``docs/spec/consumers.md#1.1``, 1.14)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from advisor.options import AdvisorOptions, with_init_params
from contract import scheduling
from contract.sentences import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from advisor.snapshot import StoredConfigMap

_Loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
"""Scalars stay texts, as the scheduler has them."""
_DEEPEST = 50


def _check_depth(text: str) -> None:
    """Raise ``ValueError`` for nesting of which a loader would die."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEEPEST:
                raise ValueError("is nested too deeply")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def scheduler_options(configmaps: Iterable[StoredConfigMap]) -> tuple[AdvisorOptions, str] | None:
    """Return the options that the scheduler's ConfigMap sets, and what could not be read of it.

    ``None`` where there is no such ConfigMap.
    """
    config_map = scheduler_configmap(configmaps)
    if config_map is None:
        return None
    arguments, problem = _init_params(config_map.data.get(scheduling.SCHEDULER_CONFIG_KEY, ""))
    return with_init_params(AdvisorOptions(), arguments), problem


def scheduler_configmap(configmaps: Iterable[StoredConfigMap]) -> StoredConfigMap | None:
    """Return the ConfigMap with the scheduler's configuration, ``None`` where there is none."""
    place = (scheduling.SCHEDULER_NAMESPACE, scheduling.SCHEDULER_CONFIGMAP)
    return next(
        (
            config_map
            for config_map in configmaps
            if (config_map.namespace, config_map.name) == place
        ),
        None,
    )


def _init_params(text: str) -> tuple[dict[str, str], str]:
    """Return the arguments of ``init-params``, and why there are none."""
    where = f"{scheduling.SCHEDULER_CONFIGMAP}: {scheduling.SCHEDULER_CONFIG_KEY}"
    try:
        _check_depth(text)
        tree: Any = yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError) as error:
        problem = " ".join(str(error).split())
        return {}, sentence(
            "{where} is not valid YAML ({problem}): switches are taken as their defaults",
            where=where,
            problem=problem,
        )
    configurations = tree.get("configurations") if isinstance(tree, dict) else None
    for configuration in configurations if isinstance(configurations, list) else ():
        if isinstance(configuration, dict) and configuration.get("name") == scheduling.INIT_PARAMS:
            arguments = configuration.get("arguments")
            pairs = arguments.items() if isinstance(arguments, dict) else ()
            return {key: value for key, value in pairs if isinstance(value, str)}, ""
    return {}, ""


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
