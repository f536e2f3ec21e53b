"""What this project needs of the official client, without the rest of it.

``import kubernetes.aio`` imports every part of the package and its counterpart for threads, with
requests and oauthlib: some 9 MiB in each agent, for three functions. So while these are imported
their parents are empty. Should a release need its parents, they are imported after all.

The package documents nothing about its division into modules. ``VERSIONS`` are those that have been
checked, ``pyproject.toml`` allows no others, and ``test_official_client.py`` fails with the name of
each part that has gone.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSIONS = ((37, 0, 2), (38,))
"""From this release of the official client on, and before that one."""
_PARENTS = ("kubernetes", "kubernetes.aio")
_NEEDED = ("kubernetes.aio.client.configuration", "kubernetes.aio.config")


@contextlib.contextmanager
def _empty_parents() -> Iterator[None]:
    """Make parents that are not imported yet empty for as long as this lasts."""
    empty: list[str] = []
    try:
        for name in _PARENTS:
            spec = importlib.util.find_spec(name)
            if name in sys.modules or spec is None:
                continue
            package = ModuleType(name)
            package.__spec__ = spec
            package.__path__ = list(spec.submodule_search_locations or ())
            sys.modules[name] = package
            empty.append(name)
        yield
    finally:
        for name in empty:
            del sys.modules[name]


with contextlib.suppress(ImportError, AttributeError), _empty_parents():
    for _name in _NEEDED:
        importlib.import_module(_name)

from kubernetes.aio.client.configuration import Configuration  # noqa: E402
from kubernetes.aio.config import incluster_config  # noqa: E402
from kubernetes.aio.config.kube_config import KubeConfigLoader  # noqa: E402

__all__ = ["Configuration", "KubeConfigLoader", "incluster_config"]
