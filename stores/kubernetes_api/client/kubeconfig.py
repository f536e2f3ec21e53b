"""Kubeconfig files: the cluster and the user of the current context. Pure, but for no secret shown.

https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec
import yaml

from contract.errors import quoted
from contract.validation_texts import decode_text
from stores.kubernetes_api.client.unusable import misconfigured

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

T = TypeVar("T")

_DEEPEST = 50
_MAX_EVENTS = 50_000
"""Of the parser: twice as many as a file with 700 clusters, users and contexts has."""
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The loader in C if PyYAML has libyaml: 60 clusters take 0.04 s, in Python 0.3 s."""


class KubeconfigCluster(msgspec.Struct, frozen=True, rename="kebab"):
    """How the API server is reached. ``*_data`` is base64 and goes before the file."""

    server: str | None = None
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool | None = None
    tls_server_name: str | None = None
    proxy_url: str | None = None


class Variable(msgspec.Struct, frozen=True):
    """One of the environment of a plugin."""

    name: str
    value: str


class Plugin(msgspec.Struct, frozen=True, rename="camel"):
    """A credential plugin."""

    command: str
    api_version: str
    args: list[str] | None = None
    env: list[Variable] | None = None


class KubeconfigUser(msgspec.Struct, frozen=True, rename="kebab"):
    """The user for the API server. ``*_data`` is base64 and goes before the file."""

    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    username: str | None = None
    password: str | None = None
    exec: Plugin | None = None
    auth_provider: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return "User(...)"


class KubeconfigEntry(NamedTuple, Generic[T]):
    """A cluster or a user, its place, and the file that it is in."""

    value: T
    where: str
    file: Path

    @property
    def directory(self) -> Path:
        """The directory to which its paths are relative."""
        return self.file.absolute().parent


class KubeconfigContext(NamedTuple):
    """What the current context names."""

    cluster: KubeconfigEntry[KubeconfigCluster]
    user: KubeconfigEntry[KubeconfigUser]


class _NamedEntry(msgspec.Struct):
    name: str
    cluster: Any = None
    user: Any = None
    context: Any = None


class _Names(msgspec.Struct):
    cluster: str
    user: str | None = None


class _KubeconfigFile(msgspec.Struct, rename="kebab"):
    current_context: str | None = None
    clusters: list[_NamedEntry] | None = None
    users: list[_NamedEntry] | None = None
    contexts: list[_NamedEntry] | None = None


class _EntryPlace(NamedTuple):
    path: Path
    entry: _NamedEntry


def current_context(files: Sequence[tuple[Path, bytes]]) -> KubeconfigContext:
    """Read and merge ``files`` as kubectl does: the first file that sets a value decides it.

    Only the entries that the current context names are checked. Raises ``StoreMisconfigured``,
    which repeats no value.
    """
    if not files:
        raise misconfigured("kubeconfig", "there is no such file any more")
    read = [(path, _read(path, content)) for path, content in files]
    chosen = [(path, file.current_context) for path, file in read if file.current_context]
    if not chosen:
        raise misconfigured(str(files[0][0]), "has no current-context")
    path, name = chosen[0]
    context = _named(name, "contexts", ((path, file.contexts) for path, file in read), path)
    at = f"{context.path}: contexts[{quoted(name)}].context"
    names = _converted(context.entry.context, _Names, at)
    cluster = _named(names.cluster, "clusters", ((p, file.clusters) for p, file in read), path)
    user = None
    if names.user:
        users = [(p, file.users) for p, file in read]
        user = _named(names.user, "users", users, path)
    server = _entry(cluster, "cluster", cluster.entry.cluster, KubeconfigCluster)
    return KubeconfigContext(server, _user(user, path))


def _user(place: _EntryPlace | None, path: Path) -> KubeconfigEntry[KubeconfigUser]:
    if place is None:
        return KubeconfigEntry(KubeconfigUser(), f"{path}: users", path)
    value = {} if place.entry.user is None else place.entry.user
    return _entry(place, "user", value, KubeconfigUser)


def _entry(place: _EntryPlace, name: str, value: Any, kind: type[T]) -> KubeconfigEntry[T]:
    where = f"{place.path}: {name}s[{quoted(place.entry.name)}].{name}"
    return KubeconfigEntry(_converted(value, kind, where), where, place.path)


def _read(path: Path, content: bytes) -> _KubeconfigFile:
    try:
        text = content.decode("utf-8-sig")
        _check_size(text)
        parsed = yaml.load(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        # Its text repeats the lines around the place, which may hold a secret.
        mark = error.problem_mark
        at = f" (line {mark.line + 1}, column {mark.column + 1})" if mark is not None else ""
        raise misconfigured(str(path), f"is not valid YAML{at}") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise misconfigured(str(path), "is not valid YAML") from None
    return _converted(parsed, _KubeconfigFile, str(path))


def _check_size(text: str) -> None:
    """Refuse what is nested deeper or has more in it than any kubeconfig.

    The parser's time grows with the square of the depth: hours for a megabyte of ``[``. It yields
    each event when it is known, so nothing deeper is read.
    """
    depth = 0
    for number, event in enumerate(yaml.parse(text, Loader=_LOADER)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _DEEPEST or number > _MAX_EVENTS:
            raise yaml.YAMLError("too much")


def _converted(value: Any, kind: type[T], where: str) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise misconfigured(where, f"is not as a kubeconfig is: {decode_text(error)}") from None
    except UnicodeEncodeError:
        raise misconfigured(where, "has half a character (surrogate)") from None


def _named(
    name: str, kind: str, lists: Iterable[tuple[Path, list[_NamedEntry] | None]], path: Path
) -> _EntryPlace:
    for where, entries in lists:
        for entry in entries or ():
            if entry.name == name:
                return _EntryPlace(where, entry)
    raise misconfigured(str(path), f"names {quoted(name)}, which is not in {kind}")
