"""Secrets are removed by value and by form, and texts stay readable."""

from __future__ import annotations

import base64
import json
import random
import time
from urllib.parse import quote

import pytest

from tests.parts.deadlines import patience
from vigil.support.secrets import (
    REMOVED,
    SecretRemover,
    is_secret_name,
    secrets_in_settings,
    secrets_of_file,
)

_SECRET = 'gh7/K"x y&8zQ'
_KEY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7"
_PEM = f"-----BEGIN PRIVATE KEY-----\n{_KEY}\n{_KEY[::-1]}\n-----END PRIVATE KEY-----"


@pytest.mark.parametrize(
    "coded",
    [
        _SECRET,
        json.dumps(_SECRET),
        json.dumps({"a": _SECRET}),
        quote(_SECRET, safe=""),
        base64.b64encode(_SECRET.encode()).decode(),
        repr(_SECRET),
    ],
)
def test_a_known_secret_is_removed_in_each_coding(coded: str) -> None:
    text = SecretRemover([_SECRET]).text(f"before {coded} after")
    assert "K" not in text.replace(REMOVED, "")
    assert "before" in text
    assert text.endswith("after")


@pytest.mark.parametrize(
    "line",
    [
        "mqtts://agent:hush-hush@broker:8883/x",
        "https://hush-hush@host/",
        "https://user:hu:sh/hush-hush@host/path",
        "proxy http:\\/\\/a, then ws://u:hush-hush\\u0040host",
        "password=hush-hush",
        "password: hush-hush",
        'PASSWORD = "hush-hush and more"',
        "MQTT_PASSWORD=hush-hush",
        "AWS_SECRET_ACCESS_KEY=hush-hush",
        '{"token":"hush-hush"}',
        '{"a":"{\\"client-key-data\\":\\"hush-hush\\"}"}',
        "api_key: 'hush-hush'",
        "Authorization: Bearer hush-hush",
        "authorization: Basic hush-hush",
        '"Authorization": "hush-hush"',
        "vigil --token hush-hush --other x",
        "curl -H 'Authorization: Bearer hush-hush'",
        "eyJhbGciOiJSUzI1NiIsImtpZCI6.hush-hush.hush-hush",
        "-----BEGIN RSA PRIVATE KEY-----\nhush-hush\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nhush-hush, and the end was cut",
        "12:00 vigil: hush-hush\n12:00 vigil: -----END PRIVATE KEY-----",
        "LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0thush-hush==",
        "ops:$2y$10$hushhushhushhushhushhu./hushhush",
        "cookie: hush-hush",
        "client_secret=hush-hush&x=1",
    ],
)
def test_what_looks_like_a_secret_is_removed(line: str) -> None:
    text = SecretRemover([]).text(line)
    assert "hush" not in text
    assert REMOVED in text


def test_a_value_with_quotes_is_removed_at_each_depth_of_json() -> None:
    text = 'say "a" hush\\ and \\"hush'
    for _ in range(4):
        text = json.dumps({"password": text, "after": "kept"})
        cleaned = SecretRemover([]).text(text)
        assert "hush" not in cleaned


@pytest.mark.parametrize(
    "line",
    [
        "chip 3 has 80E18402 at SeparateNPU since 2026-11-29T05:00:00",
        "password_file: /etc/npu-vigil/password",
        "key_file = /etc/npu-vigil/tls.key",
        "http://127.0.0.1:9820/metrics answers 200",
        'npu_vigil_fault_info{code="80E18402",name_en="HBM"} 1',
        "a token bucket has 20 tokens left",
        "mail to somebody@example.com",
    ],
)
def test_other_texts_stay(line: str) -> None:
    assert SecretRemover(["not-in-it"]).text(line) == line


def test_values_of_json_keep_their_syntax() -> None:
    value = {
        "password": "hush-hush",
        "url": "mqtt://u:hush-hush@h",
        "list": [{"token": "hush-hush"}, 1, None, True],
        "password_file": "/etc/p",
        "-----BEGIN PRIVATE KEY-----hush-hush": 1,
        "after": "kept",
    }
    cleaned = SecretRemover([]).value(value)
    assert "hush" not in json.dumps(cleaned)
    assert isinstance(cleaned, dict)
    assert cleaned["after"] == "kept"
    assert cleaned["password_file"] == "/etc/p"


def test_what_is_nested_without_end_is_removed() -> None:
    value: object = "hush-hush"
    for _ in range(900):
        value = [value]
    cleaned = json.dumps(SecretRemover([]).value(value))
    assert "hush" not in cleaned
    assert REMOVED in cleaned


def test_secrets_of_a_kubeconfig_and_of_files_are_read() -> None:
    text = (
        "users:\n- name: a\n  user:\n    token: abc-def\n    client-key-data: S0VZ\n"
        "    tokenFile: /run/token\n    client-key: tls.key\n    password: 'p-w'\n"
    )
    assert secrets_in_settings(text) == ["abc-def", "S0VZ", "p-w"]
    assert secrets_in_settings(text, of_files=True) == ["/run/token", "tls.key"]
    lines = secrets_of_file(_PEM)
    text = SecretRemover(lines).text(f"one line: {_KEY[::-1]}")
    assert text == f"one line: {REMOVED}"


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("password", True),
        ("MQTT_PASSWORD", True),
        ("client-key-data", True),
        ("token", True),
        ("password_file", False),
        ("tokenFile", False),
        ("node", False),
        ("key", False),
    ],
)
def test_names_of_secrets(name: str, *, is_secret: bool) -> None:
    assert is_secret_name(name) is is_secret


def test_a_short_value_is_not_removed_everywhere() -> None:
    assert SecretRemover(["a", "", "abc"]).text("abc a cab") == "abc a cab"


@pytest.mark.slow
def test_a_hostile_text_does_not_take_long() -> None:
    remover = SecretRemover(["known-secret"])
    count = 200_000
    for piece in ("a", "password", "://", "eyJ", "-----BEGIN ", '"', "\\", "token:", "a:", "--"):
        begun = time.monotonic()
        remover.text(piece * (count // len(piece)))
        assert time.monotonic() - begun < patience(10), piece


@pytest.mark.slow
def test_arbitrary_texts_lose_every_planted_secret() -> None:
    chance = random.Random(64)
    pieces = ["://", "@", '"', "\\", "\n", "password", ":", "=", " ", "{", "-----BEGIN", "é", "eyJ"]
    remover = SecretRemover(["Zq7-known-Zq7"])
    for _ in range(3000):
        parts = chance.choices([*pieces, "Zq7-known-Zq7"], k=12)
        assert "Zq7-known" not in remover.text("".join(parts))
