"""The login of a client at a daemon over HTTPS: files with it, and why a connection failed.

Each command imports this module for its options, so the module for TLS is imported late.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, NamedTuple

from contract.errors import ConfigurationError, Problem
from service.files.private import rights_problems

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

_MAX_LOGIN_BYTES = 64 << 10
PROXIED_AUTHORIZATION = "NPU-Vigil-Authorization"
"""The header of a login through an API server, which removes ``Authorization`` before it forwards.
"""

COMMAND_LINE = "command line"
"""The source of files that are options of a command; others are settings of a daemon."""


# Of OpenSSL's ``x509_vfy.h``; Python has no names for them.
_OTHER_NAMES = frozenset((62, 63, 64))
"""The certificate is for another host name, mail address or IP address."""
_PLAIN_REASONS = frozenset(("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"))
"""What a client reads as TLS is something else, such as an answer over HTTP."""
_EXPIRED = 10
_REFUSED_REASONS = frozenset(
    (
        *("TLSV1_ALERT_UNKNOWN_CA", "SSLV3_ALERT_CERTIFICATE_EXPIRED"),
        *("SSLV3_ALERT_BAD_CERTIFICATE", "SSLV3_ALERT_CERTIFICATE_UNKNOWN"),
    )
)
"""Alerts of a server that accepts no such certificate of a client."""


class LoginFiles(NamedTuple):
    """Files of a login at a daemon over HTTPS, and of the authority of its certificate."""

    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    password_file: Path | None = None
    token_file: Path | None = None


def tls_reason(error: BaseException | None, source: str = COMMAND_LINE) -> str | None:
    """Return why a connection over TLS failed and what helps; ``None`` for other errors."""
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _OTHER_NAMES:
            return f"{error.verify_message.rstrip('.')}; use a name that the certificate has"
        if error.verify_code == _EXPIRED:
            return "its certificate has expired; renew pages.certificate_file there"
        return (
            f"its certificate is not trusted: {error.verify_message}; {_name(source, 'ca_file')} "
            "names the file of another authority"
        )
    if isinstance(error, ssl.SSLError) and error.reason in _PLAIN_REASONS:
        return "it does not use TLS; use http://"
    if isinstance(error, ssl.SSLError) and error.reason in _REFUSED_REASONS:
        alert = error.reason.lower().rpartition("alert_")[2].replace("_", " ")
        return f"it refuses the certificate of {_name(source, 'certificate_file')}: {alert}"
    return None


def tls_context(files: LoginFiles, source: str = COMMAND_LINE) -> ssl.SSLContext:
    """Return the authorities and the own certificate of a connection.

    Raises ``ConfigurationError`` for files that cannot be used.
    """
    import ssl

    try:
        context = ssl.create_default_context(cafile=files.ca_file)
    except OSError as error:
        text = f"{files.ca_file} is not a valid PEM file of an authority: {_reason_of(error)}"
        raise ConfigurationError(source, [Problem(_name(source, "ca_file"), text)]) from None
    if files.certificate_file is None:
        return context
    if files.key_file is not None:
        _refuse_open_file(source, "key_file", files.key_file)
    try:
        # An encrypted key would ask for its password at the terminal, or in a pipeline for ever.
        context.load_cert_chain(files.certificate_file, files.key_file, password=b"")
    except (OSError, ValueError) as error:
        text = f"{files.certificate_file} is not a valid certificate with its key (PEM)"
        text += f", or {_name(source, 'key_file')}: {_reason_of(error)}"
        problem = Problem(_name(source, "certificate_file"), text)
        raise ConfigurationError(source, [problem]) from None
    if files.key_file is not None:
        _refuse_open_file(source, "key_file", files.key_file)
    return context


def _reason_of(error: Exception) -> str:
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)


def login_problem(files: LoginFiles, source: str = COMMAND_LINE) -> str:
    """Return why a daemon answered 401."""
    given = files.password_file or files.token_file or files.certificate_file
    if given is not None:
        return f"it does not accept the login of {given}"
    names = [_name(source, name) for name in ("password_file", "token_file", "certificate_file")]
    return f"it needs a login; give {names[0]}, {names[1]} or {names[2]}"


def authorization(files: LoginFiles, source: str = COMMAND_LINE) -> str | None:
    """Return the header of a login. Raises ``ConfigurationError`` for files that cannot be used."""
    if files.password_file is not None and files.token_file is not None:
        names = f"{_name(source, 'password_file')}, {_name(source, 'token_file')}"
        problem = Problem(names, "give one of them, and not both")
        raise ConfigurationError(source, [problem])
    if files.token_file is not None:
        token = _line(source, "token_file", files.token_file)
        return f"Bearer {token.decode('ascii', 'replace')}"
    if files.password_file is None:
        return None
    login = _line(source, "password_file", files.password_file)
    _refuse_open_file(source, "password_file", files.password_file)
    if b":" not in login:
        text = f"{files.password_file} does not begin with a line USER:PASSWORD"
        raise ConfigurationError(source, [Problem(_name(source, "password_file"), text)])
    return f"Basic {base64.b64encode(login).decode('ascii')}"


def _line(source: str, name: str, path: Path) -> bytes:
    """Return the first line of a file."""
    try:
        with path.open("rb") as file:
            line = file.readline(_MAX_LOGIN_BYTES).rstrip(b"\r\n")
    except OSError as error:
        text = f"{path} cannot be read: {error.strerror}"
        raise ConfigurationError(source, [Problem(_name(source, name), text)]) from None
    if not line:
        text = f"{path} begins with an empty line"
        raise ConfigurationError(source, [Problem(_name(source, name), text)])
    return line


def _refuse_open_file(source: str, name: str, path: Path) -> None:
    problems = rights_problems(_name(source, name), path)
    if problems:
        raise ConfigurationError(source, problems)


def _name(source: str, name: str) -> str:
    """Return how the user gives a file: as an option or as a setting."""
    return f"--{name.replace('_', '-')}" if source == COMMAND_LINE else name
