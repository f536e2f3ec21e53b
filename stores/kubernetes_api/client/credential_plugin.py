"""Credential plugins of a kubeconfig: run with a deadline and bounds, and read.

https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import signal
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec

from contract.errors import quoted
from contract.validation_texts import decode_text
from stores.kubernetes_api.client.unusable import Unusable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MAX_OUTPUT = 1 << 20
_MAX_COMPLAINT = 4096
_READ_BYTES = 1 << 16


class Plugins:
    """Runs plugins, one at a time, each in a process group of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: subprocess.Popen[bytes] | None = None
        self._closed = False
        self.began = -math.inf
        """When the last run began (``time.monotonic``)."""

    def run(self, command: Sequence[str], environment: Mapping[str, str], deadline: float) -> bytes:
        """Return what ``command`` prints before it ends with status 0. Blocks.

        At ``deadline`` (``time.monotonic``) its process group is killed, and so it is when it
        prints too much. Raises ``Unusable``.
        """
        # Held over the start, so that ``end`` misses no process that is just being started.
        with self._lock:
            if self._closed:
                raise Unusable("is not run: the store has been closed")
            self.began = time.monotonic()
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=environment,
                    start_new_session=True,
                )
            except OSError as error:
                raise Unusable(f"cannot be run: {error.strerror}") from error
            except ValueError:
                raise Unusable("cannot be run: its arguments or variables are none") from None
            self._running = process
        try:
            return _finished(process, deadline)
        finally:
            with self._lock:
                self._running = None
            # Not earlier: until the process was waited for, the group is this one.
            if process.returncode is None:
                _kill(process.pid)
                process.wait()

    def end(self) -> None:
        """Kill the plugin that runs, and run none any more."""
        with self._lock:
            self._closed = True
            if self._running is not None and self._running.returncode is None:
                _kill(self._running.pid)


def _finished(process: subprocess.Popen[bytes], deadline: float) -> bytes:
    assert process.stdout is not None
    assert process.stderr is not None
    printed, complaint = bytearray(), bytearray()
    with process.stdout, process.stderr, selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, printed)
        selector.register(process.stderr, selectors.EVENT_READ, complaint)
        while selector.get_map():
            ready = selector.select(_left(deadline))
            for key, _ in ready:
                chunk = os.read(key.fd, _READ_BYTES)
                if not chunk:
                    selector.unregister(key.fileobj)
                key.data.extend(chunk)
            # Read on, or the plugin would block at a full pipe; only the first words are kept.
            del complaint[_MAX_COMPLAINT:]
            if len(printed) > _MAX_OUTPUT:
                raise Unusable(f"printed more than {_MAX_OUTPUT} bytes and was ended")
        try:
            # A process may close its outputs and go on.
            status = process.wait(_left(deadline))
        except subprocess.TimeoutExpired:
            raise Unusable(_TOO_SLOW) from None
    if status != 0:
        how = f"ended with status {status}" if status > 0 else f"was ended by signal {-status}"
        reason = quoted(complaint.decode(errors="replace"))
        raise Unusable(f"{how}: {reason}" if reason else how)
    return bytes(printed)


_TOO_SLOW = "did not end in time and was ended"


def _left(deadline: float) -> float:
    remaining_seconds = deadline - time.monotonic()
    if remaining_seconds <= 0:
        raise Unusable(_TOO_SLOW)
    return remaining_seconds


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


class PluginCredential(msgspec.Struct, frozen=True, rename="camel", repr_omit_defaults=True):
    """What a plugin gives: a token, a certificate with its key (PEM), or all of them."""

    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None

    def __repr__(self) -> str:
        return "PluginCredential(...)"


class _Answer(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    status: PluginCredential


def request_to(version: str) -> str:
    """Return the ``KUBERNETES_EXEC_INFO`` of a plugin that cannot ask a user anything."""
    request: dict[str, Any] = {
        "apiVersion": version,
        "kind": "ExecCredential",
        "spec": {"interactive": False},
    }
    return msgspec.json.encode(request).decode()


def credential_in(printed: bytes, version: str) -> PluginCredential:
    """Read an ``ExecCredential`` of ``client.authentication.k8s.io``.

    Raises ``Unusable``, which repeats nothing of ``printed``.
    """
    try:
        answer = msgspec.json.decode(printed, type=_Answer)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        message = decode_text(error) if isinstance(error, msgspec.ValidationError) else "no JSON"
        raise Unusable(f"printed no ExecCredential: {message}") from None
    if answer.kind != "ExecCredential" or answer.api_version != version:
        raise Unusable(f"printed no ExecCredential of {quoted(version)}")
    status = answer.status
    if (status.client_certificate_data is None) != (status.client_key_data is None):
        raise Unusable("printed a certificate without its key, or a key without certificate")
    if status.token is None and status.client_certificate_data is None:
        raise Unusable("printed neither a token nor a certificate")
    return status
