"""Replaces names by pseudonyms that are equal within an archive and differ between archives."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re

_DIGITS = 10
_MAX_SEGMENTS = 24
# A backslash before a name: its first letter may belong to an escape, as in ``\nnode-1``.
_TOKEN = re.compile(r"(\\?)([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)")
_SEGMENT = re.compile(r"[._-]+|[^._-]+")
_ESCAPES = "bfnrt"
_IPV4 = re.compile(r"(?<!\d)(?<!\d\.)(\d{1,3}(?:\.\d{1,3}){3})(?!\d|\.\d)")
_IPV6 = re.compile(
    r"(?<![0-9A-Fa-f:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?:\.\d{1,3}){0,3}"
)
_MAC = re.compile(r"(?<![0-9A-Fa-f:-])(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:-])")
_KEYS = {
    **dict.fromkeys(
        ("node", "nodes", "node_name", "nodename", "host", "hostname", "host_name", "holder"),
        "node",
    ),
    **dict.fromkeys(("pod", "pods", "pod_name", "podname"), "pod"),
    **dict.fromkeys(("namespace", "namespaces"), "namespace"),
    **dict.fromkeys(
        ("serial_number", "serialnumber", "serial", "sn", "node_sn", "nodesn"), "serial"
    ),
}
"""Members of JSON whose values are names, and the kind of these."""
_IN_TEXT = (
    ("pod", "namespace", re.compile(r"\bpod ([a-z0-9-]+)/([a-z0-9][a-z0-9.-]*[a-z0-9])")),
    ("node", None, re.compile(r"\bnode (?:name )?['\"]?([a-z0-9][a-z0-9.-]*\d)\b")),
    (
        "serial",
        None,
        re.compile(r"\b(?:serial number|serial no\.?|S/?N)\s*[:=]?\s*([A-Z0-9-]{6,})"),
    ),
)
PUBLIC = frozenset({"default", "kube-system", "kube-public", "kube-node-lease", "mindx-dl"}) | {
    *("cluster-system", "npu-vigil", "true", "false", "none", "null", "unknown", "localhost"),
    *("chip", "node", "host", "agent", "aggregator"),
}
"""Names that everybody has: to replace them hides nothing."""


class Pseudonyms:
    """Names by pseudonym. Without ``key``, no reader can try names against an archive."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._names: dict[str, str] = {}
        self._odd: dict[str, str] = {}
        self._cache: dict[str, str] = {}

    def add(self, kind: str, name: str) -> None:
        """Have ``name`` of this ``kind`` replaced: node, pod, namespace or serial."""
        name = name.strip()
        lower = name.lower()
        # A single letter is a part of too many other texts.
        if len(name) < 2 or lower in PUBLIC or lower in self._names or name in self._odd:
            return
        # Any other name is not one token, and is searched for as it stands.
        if _TOKEN.fullmatch(name):
            self._names[lower] = self._pseudonym(kind, lower)
        else:
            self._odd[name] = self._pseudonym(kind, lower)
        # Tokens that were looked up before may contain the new name.
        self._cache.clear()

    def learn(self, value: object) -> None:
        """Add each name in a JSON ``value``, by the names of its members."""
        match value:
            case dict():
                for key, item in value.items():
                    kind = _KEYS.get(str(key).lower())
                    if kind is not None:
                        self._add_all(kind, item)
                    self.learn(item)
            case list() | tuple():
                for item in value:
                    self.learn(item)
            case str():
                self.learn_text(value)

    def learn_text(self, text: str) -> None:
        """Add each name that a line of a log shows as a name."""
        for kind, other, form in _IN_TEXT:
            for match in form.finditer(text):
                if other is not None:
                    self.add(other, match[1])
                self.add(kind, match[match.lastindex or 1])

    def _add_all(self, kind: str, item: object) -> None:
        match item:
            case str():
                namespace, slash, name = item.partition("/")
                if kind == "pod" and slash:
                    self.add("namespace", namespace)
                    item = name
                self.add(kind, item)
            case list() | tuple():
                for part in item:
                    if isinstance(part, str):
                        self._add_all(kind, part)

    def text(self, text: str) -> str:
        """Return ``text`` with each name and address replaced."""
        # Addresses first: a name may contain dots and digits as well.
        text = _MAC.sub(lambda match: self._pseudonym("address", match[0].lower()), text)
        text = _IPV4.sub(self._address, text)
        text = _IPV6.sub(self._address, text)
        for name, pseudonym in self._odd.items():
            text = text.replace(name, pseudonym)
        return _TOKEN.sub(self._token, text) if self._names else text

    def value(self, value: object) -> object:
        """Return a JSON ``value`` with each name and address replaced, also in keys."""
        match value:
            case str():
                return self.text(value)
            case list() | tuple():
                return [self.value(item) for item in value]
            case dict():
                return {self.text(str(key)): self.value(item) for key, item in value.items()}
        return value

    def _address(self, match: re.Match[str]) -> str:
        try:
            address = ipaddress.ip_address(match[0])
        except ValueError:
            return match[0]
        if address.is_loopback or address.is_unspecified:
            return match[0]
        return self._pseudonym("address", str(address))

    def _token(self, match: re.Match[str]) -> str:
        escape, token = match[1], match[2]
        replaced = self._replaced(token)
        if escape and replaced == token and token[0] in _ESCAPES:
            replaced = token[0] + self._replaced(token[1:])
        return escape + replaced

    def _replaced(self, token: str) -> str:
        """Return ``token`` with the longest names in it replaced, as in ``deviceinfo-node-1``."""
        cached = self._cache.get(token)
        if cached is not None:
            return cached
        segments = _SEGMENT.findall(token)
        result: list[str] = []
        start = 0
        while start < len(segments):
            for end in range(min(len(segments), start + _MAX_SEGMENTS), start, -1):
                pseudonym = self._names.get("".join(segments[start:end]).lower())
                if pseudonym is not None:
                    result.append(pseudonym)
                    start = end
                    break
            else:
                result.append(segments[start])
                start += 1
        self._cache[token] = "".join(result)
        return self._cache[token]

    def _pseudonym(self, kind: str, name: str) -> str:
        digest = hmac.new(self._key, name.encode(errors="replace"), hashlib.sha256)
        return f"{kind}-{digest.hexdigest()[:_DIGITS]}"
