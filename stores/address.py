"""Store addresses as operators write them."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from contract.errors import ConfigurationError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stores.base import Beat, Store
    from stores.settings import Mqtt

_KUBERNETES = "kubernetes:"
_DIRECTORY = "directory:"


def open_store(
    url: str,
    kubeconfig: str | Path | None = None,
    *,
    mqtt: Mqtt | None = None,
    node: str | None = None,
    to_be: Beat | None = None,
    others_may_write: bool = False,
    by_operator: bool = False,
) -> Store:
    """Open the store at ``url``: ``kubernetes:``, ``directory:PATH`` or ``mqtt[s]://HOST:PORT``.

    ``kubernetes:`` uses ``kubeconfig``, else the environment's ``KUBECONFIG``, else the service
    account of the pod it runs in. ``mqtt`` sets how a broker is connected, ``node`` whose agent
    opens the store: its connection has a last will. ``to_be`` is the beat that this agent will
    make, so that its will names its host. ``others_may_write``: root takes a directory, too,
    that other users may write. ``by_operator``: an API server keeps what is written as an edit by a
    person, not by a daemon of ours. Nothing is asked of the store yet. Raises
    ``ConfigurationError`` with every problem.
    """
    if url == _KUBERNETES:
        return _open_kubernetes(url, kubeconfig, by_operator)
    if url.startswith(_DIRECTORY):
        return _open_directory(url, others_may_write)
    if url.startswith(("mqtt://", "mqtts://")):
        return _open_mqtt(url, mqtt, node, to_be)
    raise _wrong(
        url, "is not a valid store address; use kubernetes:, directory:PATH or mqtt[s]://HOST:PORT"
    )


def _open_kubernetes(url: str, kubeconfig: str | Path | None, by_operator: bool) -> Store:
    # The client costs 20 MB and 0.4 s, which users of another store do not pay.
    from stores.kubernetes_api.store import KubernetesStore

    return KubernetesStore(url, kubeconfig_files(kubeconfig), by_operator=by_operator)


def kubeconfig_files(kubeconfig: str | Path | None) -> str | None:
    """Return the files that define how to reach the API server; ``None`` for the pod's service
    account.

    Raises ``ConfigurationError`` where there are neither.
    """
    path = kubeconfig or os.environ.get("KUBECONFIG")
    if path:
        files = [Path(part).expanduser() for part in str(path).split(os.pathsep) if part]
        # kubectl skips missing files of a list, so one that exists is enough.
        if not any(file.is_file() for file in files):
            raise _wrong(_KUBERNETES, f"there is no kubeconfig file {path}")
        return os.pathsep.join(str(file) for file in files)
    # The kubelet sets it in each container.
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return None
    raise _wrong(
        _KUBERNETES,
        "this process does not run in a pod and no kubeconfig is given; "
        "use --kubeconfig FILE or the environment variable KUBECONFIG",
    )


def _open_directory(url: str, others_may_write: bool) -> Store:
    from stores.directory.owner import shared_problem
    from stores.directory.store import DirectoryStore

    path = url.removeprefix(_DIRECTORY)
    if not path or path.startswith("//"):
        raise _wrong(url, "has no path; write directory:PATH, such as directory:/var/lib/vigil")
    place = Path(path).expanduser().absolute()
    if place.exists() and not place.is_dir():
        raise _wrong(url, f"{place} is not a directory")
    if not others_may_write:
        # What cannot be asked now is asked again when it is written to.
        with contextlib.suppress(OSError):
            problem = shared_problem(place)
            if problem is not None:
                raise _wrong(url, problem)
    return DirectoryStore(url, place, others_may_write=others_may_write)


def _open_mqtt(url: str, mqtt: Mqtt | None, node: str | None, to_be: Beat | None) -> Store:
    from stores.mqtt.address import parse_address
    from stores.settings import Mqtt

    settings = mqtt or Mqtt()
    problems = list(_unreadable(settings))
    address = None
    try:
        address = parse_address(url)
    except ValueError as error:
        # Not raised yet: all problems are reported together (invariant 4 of docs/architecture.md).
        problems.insert(0, Problem(shown(url), str(error)))
    if problems or address is None:
        raise ConfigurationError("store", problems)
    # aiomqtt costs 5 MB, which users of another store do not pay.
    from stores.mqtt.store import MqttStore

    return MqttStore(url, address, settings, node, to_be)


def _unreadable(mqtt: Mqtt) -> Iterator[Problem]:
    from stores.settings import read_password

    for name in ("password_file", "ca_file", "certificate_file", "key_file"):
        path: Path | None = getattr(mqtt, name)
        if path is None:
            continue
        try:
            if name == "password_file":
                read_password(path)
            else:
                path.read_bytes()
        except OSError as error:
            yield Problem(f"mqtt.{name}", f"cannot read {path.absolute()}: {error.strerror}")
        except ValueError as error:
            yield Problem(f"mqtt.{name}", str(error))


def _wrong(url: str, message: str) -> ConfigurationError:
    return ConfigurationError("store", [Problem(shown(url).removesuffix(":") or "''", message)])


def shown(url: str) -> str:
    """Return ``url`` without the password that may stand in it by mistake."""
    return re.sub("//.*@", "//…@", url)
