"""The login of a client at a daemon over HTTPS: files with it, and why a connection failed.

Each command imports this module for its options, so the module for TLS is imported late.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, NamedTuple

from contract.errors import ConfigurationError, Problem, quoted
from contract.sentences import sentence
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
            return sentence(
                "{reason}; use a name that the certificate has",
                reason=quoted(error.verify_message.rstrip(".")),
            )
        if error.verify_code == _EXPIRED:
            return sentence("its certificate has expired; renew pages.certificate_file there")
        return sentence(
            "its certificate is not trusted: {reason}; {option} names the file of another "
            "authority",
            reason=quoted(error.verify_message),
            option=_name(source, "ca_file"),
        )
    if isinstance(error, ssl.SSLError) and error.reason in _PLAIN_REASONS:
        return sentence("it does not use TLS; use http://")
    if isinstance(error, ssl.SSLError) and error.reason in _REFUSED_REASONS:
        alert = error.reason.lower().rpartition("alert_")[2].replace("_", " ")
        return sentence(
            "it refuses the certificate of {option}: {reason}",
            option=_name(source, "certificate_file"),
            reason=alert,
        )
    return None


def tls_context(files: LoginFiles, source: str = COMMAND_LINE) -> ssl.SSLContext:
    """Return the authorities and the own certificate of a connection.

    Raises ``ConfigurationError`` for files that cannot be used.
    """
    import ssl

    try:
        context = ssl.create_default_context(cafile=files.ca_file)
    except OSError as error:
        text = sentence(
            "{file} is not a valid PEM file of an authority: {reason}",
            file=files.ca_file,
            reason=_reason_of(error),
        )
        raise ConfigurationError(source, [Problem(_name(source, "ca_file"), text)]) from None
    if files.certificate_file is None:
        return context
    if files.key_file is not None:
        _refuse_open_file(source, "key_file", files.key_file)
    try:
        # An encrypted key would ask for its password at the terminal, or in a pipeline for ever.
        context.load_cert_chain(files.certificate_file, files.key_file, password=b"")
    except (OSError, ValueError) as error:
        text = sentence(
            "{file} is not a valid certificate with its key (PEM), or {option}: {reason}",
            file=files.certificate_file,
            option=_name(source, "key_file"),
            reason=_reason_of(error),
        )
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
        return sentence("it does not accept the login of {file}", file=given)
    return sentence(
        "it needs a login; give {password}, {token} or {certificate}",
        password=_name(source, "password_file"),
        token=_name(source, "token_file"),
        certificate=_name(source, "certificate_file"),
    )


def authorization(files: LoginFiles, source: str = COMMAND_LINE) -> str | None:
    """Return the header of a login. Raises ``ConfigurationError`` for files that cannot be used."""
    if files.password_file is not None and files.token_file is not None:
        names = f"{_name(source, 'password_file')}, {_name(source, 'token_file')}"
        problem = Problem(names, sentence("give one of them, and not both"))
        raise ConfigurationError(source, [problem])
    if files.token_file is not None:
        token = _line(source, "token_file", files.token_file)
        return f"Bearer {token.decode('ascii', 'replace')}"
    if files.password_file is None:
        return None
    login = _line(source, "password_file", files.password_file)
    _refuse_open_file(source, "password_file", files.password_file)
    if b":" not in login:
        text = sentence("{file} does not begin with a line USER:PASSWORD", file=files.password_file)
        raise ConfigurationError(source, [Problem(_name(source, "password_file"), text)])
    return f"Basic {base64.b64encode(login).decode('ascii')}"


def _line(source: str, name: str, path: Path) -> bytes:
    """Return the first line of a file."""
    try:
        with path.open("rb") as file:
            line = file.readline(_MAX_LOGIN_BYTES).rstrip(b"\r\n")
    except OSError as error:
        text = sentence("{file} cannot be read: {reason}", file=path, reason=error.strerror)
        raise ConfigurationError(source, [Problem(_name(source, name), text)]) from None
    if not line:
        text = sentence("{file} begins with an empty line", file=path)
        raise ConfigurationError(source, [Problem(_name(source, name), text)])
    return line


def _refuse_open_file(source: str, name: str, path: Path) -> None:
    problems = rights_problems(_name(source, name), path)
    if problems:
        raise ConfigurationError(source, problems)


def _name(source: str, name: str) -> str:
    """Return how the user gives a file: as an option or as a setting."""
    return f"--{name.replace('_', '-')}" if source == COMMAND_LINE else name
