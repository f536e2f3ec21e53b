"""Removes secrets from texts: values that this host knows as secrets, and all that looks like one.

Both are needed: a known value is found in any place, and a password of another program only by
its form. See decision 64.
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

if TYPE_CHECKING:
    from collections.abc import Iterable

REMOVED = "(removed)"
_MIN_LENGTH = 4
"""Shorter values are also words of other meaning."""
_MIN_KEY_LINE = 16
_MAX_DEPTH = 60
_NAMES = (
    r"(?:passw(?:or)?d|passphrase|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key"
    r"|client[_-]?key|encryption[_-]?key|key[_-]data|credential|cookie|psk)"
)
_IS_SECRET_NAME = re.compile(_NAMES, re.IGNORECASE)
_IS_PATH_NAME = re.compile(r"(?:file|path|dir)$", re.IGNORECASE)
_NAME = rf"(?<![a-z]){_NAMES}(?![\w.-]{{0,40}}(?:file|path|dir)\b)[\w.-]{{0,40}}"
# A quoted value ends at a quote with as many backslashes as the one that began it: texts inside of
# JSON have one, those inside of that three.
_VALUE = r"(?P<depth>\\*)(?P<quote>[\"']).*?(?:(?<!\\)(?P=depth)(?P=quote)|$)|[^\s,;&\"'}\])\\]+"
# Bounded where a search could begin at each character: such a text would take hours.
_FORMS = (
    # Without an end the rest of the text is removed: a cut log has the beginning of a key.
    (
        re.compile(
            r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?"
            r"(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)",
            re.DOTALL,
        ),
        REMOVED,
    ),
    # The same in base64, as a kubeconfig has it.
    (re.compile(r"LS0tLS1CRUdJTi[A-Za-z0-9+/=_-]*"), REMOVED),
    # A bcrypt hash, as a users file of the pages has it.
    (re.compile(r"\$2[abxy]\$[0-9]{2}\$[./A-Za-z0-9]{16,53}"), REMOVED),
    # A JSON Web Token.
    (re.compile(r"eyJ[A-Za-z0-9_-]{16,}[A-Za-z0-9_.=-]*"), REMOVED),
    (
        re.compile(r"(\bauthorization\\*[\"']?\s*[:=]\s*\\*[\"']?)[^\r\n\"']+", re.IGNORECASE),
        rf"\1{REMOVED}",
    ),
    (re.compile(r"(\bbearer\s+)[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE), rf"\1{REMOVED}"),
    (re.compile(rf"({_NAME}\\*[\"']?\s*[:=]\s*)(?:{_VALUE})", re.IGNORECASE), rf"\1{REMOVED}"),
    (re.compile(rf"((?<=-){_NAMES}[\w-]{{0,20}}\s+)(?!-)\S+", re.IGNORECASE), rf"\1{REMOVED}"),
)
_WORD = re.compile(r"[^\s\"'<>]+")
_AT = re.compile(r"@|\\u0040")
_END_OF_KEY = re.compile(r"-----END [A-Z ]{0,40}PRIVATE KEY-----")
_MAX_KEY_CHARACTERS = 8192
"""A key of 4096 bits in a log, with a time and a name before each of its lines."""
_SETTING = re.compile(
    r"^[\s-]*[\"']?([\w.-]+)[\"']?[ \t]*[:=][ \t]*[\"']?([^\s\"',}]+)", re.MULTILINE
)
"""A key and its value, in YAML or TOML."""
_SECRET_FILES = re.compile(r"^(?:token_?file|password_?file|client-key|key_?file)$", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Return whether a value with this ``name`` is a secret; the path of a file is none."""
    return _IS_SECRET_NAME.search(name) is not None and _IS_PATH_NAME.search(name) is None


def secrets_in_settings(text: str, *, of_files: bool = False) -> list[str]:
    """Return the secrets in a kubeconfig or a configuration file, or names of files with one."""
    settings = _SETTING.findall(text)
    if of_files:
        return [value for name, value in settings if _SECRET_FILES.match(name)]
    return [
        value for name, value in settings if is_secret_name(name) and not _SECRET_FILES.match(name)
    ]


def secrets_of_file(text: str) -> list[str]:
    """Return what must not leave a file with a password, a token or a key: it and its lines."""
    # Each line of a key may stand alone in a log.
    lines = [line.strip() for line in text.splitlines() if not line.startswith("-----")]
    return [text.strip(), *(line for line in lines if len(line) >= _MIN_KEY_LINE)]


class SecretRemover:
    """Removes ``secrets`` in every usual coding, and what has the form of a secret."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms: set[str] = set()
        for secret in secrets:
            if len(secret) >= _MIN_LENGTH:
                forms |= _codings(secret)
        # The longest first: a secret may contain another one.
        alternatives = "|".join(map(re.escape, sorted(forms, key=lambda form: (-len(form), form))))
        self._known = re.compile(alternatives) if forms else None

    def text(self, text: str) -> str:
        """Return ``text`` without secrets."""
        if self._known is not None:
            text = self._known.sub(REMOVED, text)
        for form, replacement in _FORMS:
            text = form.sub(replacement, text)
        return _without_ends_of_keys(_WORD.sub(_without_user, text))

    def value(self, value: object, depth: int = 0) -> object:
        """Return a JSON ``value`` without secrets; a member with a secret's name loses its value.

        Keys and values are texts here, so what is removed never breaks the syntax. What is nested
        deeper than ``_MAX_DEPTH`` is removed, too: nothing of ours is.
        """
        if depth > _MAX_DEPTH:
            return REMOVED
        match value:
            case str():
                return self.text(value)
            case list() | tuple():
                return [self.value(item, depth + 1) for item in value]
            case dict():
                return {
                    self.text(str(key)): (
                        REMOVED
                        if isinstance(item, str) and item and is_secret_name(str(key))
                        else self.value(item, depth + 1)
                    )
                    for key, item in value.items()
                }
        return value


def _without_user(word: re.Match[str]) -> str:
    """Return ``word`` without the user and the password of a URL in it."""
    start, separator, rest = word[0].partition("://")
    # The last one: a password that is not quoted for a URL may have one, too.
    end = max((at.end() for at in _AT.finditer(rest)), default=0)
    return f"{start}{separator}{REMOVED}@{rest[end:]}" if separator and end else word[0]


def _without_ends_of_keys(text: str) -> str:
    """Return ``text`` without the rest of a key whose beginning was cut, as at the start of a log.

    What is before such an end may belong to the key, with a time before each line.
    """
    pieces: list[str] = []
    start = 0
    for end in _END_OF_KEY.finditer(text):
        pieces += (text[start : max(start, end.start() - _MAX_KEY_CHARACTERS)], REMOVED)
        start = end.end()
    return "".join((*pieces, text[start:]))


def _codings(secret: str) -> set[str]:
    raw = secret.encode(errors="surrogateescape")
    return {
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        quote(raw, safe=""),
        quote_plus(raw),
        base64.b64encode(raw).decode(),
        base64.urlsafe_b64encode(raw).decode(),
        repr(secret)[1:-1],
    }
