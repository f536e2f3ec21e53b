"""Store addresses as operators write them (design section 10)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from contract.errors import ConfigurationError, Problem

if TYPE_CHECKING:
    from stores.base import Store

_KUBERNETES = "kubernetes:"
_DIRECTORY = "directory:"


def open_store(url: str, kubeconfig: str | Path | None = None) -> Store:
    """Open the store at ``url``: ``kubernetes:`` or ``directory:PATH``.

    ``kubernetes:`` uses ``kubeconfig``, else the environment's ``KUBECONFIG``, else the service
    account of the pod it runs in. Nothing is asked of the store yet. Raises ``ConfigurationError``.
    """
    if url == _KUBERNETES:
        return _open_kubernetes(url, kubeconfig)
    if url.startswith(_DIRECTORY):
        return _open_directory(url)
    if url.startswith(("mqtt://", "mqtts://")):
        raise _wrong(url, "MQTT is not supported yet; use kubernetes: or directory:PATH")
    raise _wrong(url, "is no store address; use kubernetes: or directory:PATH")


def _open_kubernetes(url: str, kubeconfig: str | Path | None) -> Store:
    # The client costs 20 MB and 0.4 s, which those who use another store do not pay.
    from stores.kubernetes import KubernetesStore

    path = kubeconfig or os.environ.get("KUBECONFIG")
    if path:
        files = [Path(part).expanduser() for part in str(path).split(os.pathsep) if part]
        if not any(file.is_file() for file in files):
            raise _wrong(url, f"there is no kubeconfig file {path}")
        return KubernetesStore(url, os.pathsep.join(str(file) for file in files))
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return KubernetesStore(url, None)
    raise _wrong(
        url,
        "this process does not run in a pod and no kubeconfig is given; "
        "use --kubeconfig FILE or the environment variable KUBECONFIG",
    )


def _open_directory(url: str) -> Store:
    from stores.directory import DirectoryStore

    path = url.removeprefix(_DIRECTORY)
    if not path or path.startswith("//"):
        raise _wrong(url, "names no path; write directory:PATH, such as directory:/var/lib/vigil")
    place = Path(path).expanduser().absolute()
    if place.exists() and not place.is_dir():
        raise _wrong(url, f"{place} is not a directory")
    return DirectoryStore(url, place)


def _wrong(url: str, what: str) -> ConfigurationError:
    return ConfigurationError("store", [Problem(url or "''", what)])
