"""Proxies of an environment, by the rules that Go's ``httpproxy`` documents.

All cases were given to Go 1.26 with ``golang.org/x/net`` 0.49 too, which agrees with each.
"""

from __future__ import annotations

from time import thread_time

import pytest

from stores.kubernetes_api.client.proxies import proxy_for

PROXY = {"HTTPS_PROXY": "http://proxy:3128"}


@pytest.mark.parametrize(
    ("no_proxy", "direct", "by_proxy"),
    [
        ("", ["localhost", "127.0.0.1", "127.9.9.9", "[::1]", "[::ffff:127.0.0.1]"], ["10.0.0.1"]),
        ("foo.com", ["foo.com", "bar.foo.com", "FOO.com:6443"], ["myfoo.com", "foo.com.cn"]),
        (".foo.com", ["bar.foo.com", "a.b.foo.com"], ["foo.com", "myfoo.com"]),
        ("*.foo.com", ["bar.foo.com"], ["foo.com", "myfoo.com"]),
        ("*foo.com", [], ["foo.com", "myfoo.com", "bar.foo.com"]),
        ("foo.com:6443", ["foo.com:6443", "a.foo.com:6443"], ["foo.com", "foo.com:8443"]),
        (".foo.com:443", ["a.foo.com"], ["foo.com", "a.foo.com:6443"]),
        (" FOO.com , bar.com", ["foo.com", "bar.com"], ["foobar.com"]),
        ("*", ["foo.com", "10.0.0.1", "[2001:db8::1]"], []),
        ("a.b,*", ["foo.com"], []),
        ("**", [], ["foo.com"]),
        ("10.0.0.0/8", ["10.0.0.1", "10.255.0.1:6443", "[::ffff:10.0.0.1]"], ["11.0.0.1"]),
        ("10.1.2.3/8", ["10.255.0.1"], ["11.0.0.1", "10.example"]),
        ("10.0.0.0/33,10.0.0.0/,/8,10.0.0.0/255.0.0.0", [], ["10.0.0.1"]),
        ("0.0.0.0/0", ["10.0.0.1"], ["foo.com", "[2001:db8::1]"]),
        ("::/0", ["[2001:db8::1]"], ["10.0.0.1"]),
        ("2001:db8::/32", ["[2001:db8::1]:6443"], ["[2001:db9::1]"]),
        ("::ffff:10.0.0.0/104", ["10.0.0.1", "[::ffff:10.0.0.1]"], ["11.0.0.1"]),
        ("10.0.0.1", ["10.0.0.1", "10.0.0.1:6443", "[::ffff:10.0.0.1]"], ["10.0.0.11"]),
        ("10.0.0.1:6443", ["10.0.0.1:6443"], ["10.0.0.1", "10.0.0.1:8443"]),
        ("::ffff:10.0.0.1", ["10.0.0.1"], ["10.0.0.2"]),
        ("2001:db8::1", ["[2001:db8::1]", "[2001:DB8:0::1]:6443"], ["[2001:db8::2]"]),
        ("[2001:db8::1]:6443", ["[2001:db8::1]:6443"], ["[2001:db8::1]"]),
        ("[2001:db8::1]", [], ["[2001:db8::1]"]),
        ("010.0.0.1", [], ["10.0.0.1"]),
        (":443,:,,.,[,],[]:443", [], ["foo.com", "10.0.0.1", "[2001:db8::1]"]),
        ("foo.com:abc,bar.com:443:1", [], ["foo.com", "bar.com"]),
        ("foo.com:,[bar.com]:443", ["foo.com", "bar.com"], ["foo.com.cn"]),
        ("example", ["example", "kubernetes.example"], ["kubernetes"]),
        ("kubernetes", ["kubernetes"], ["kubernetes.example"]),
        ("bücher.example", ["xn--bcher-kva.example", "a.bücher.example"], ["bucher.example"]),
        ("xn--bcher-kva.example", ["bücher.example"], ["bucher.example"]),
        ("example.com", [], ["[1000::%25.example.com]:123"]),
        ("fe80::/10", ["[fe80::1%25eth0]"], ["[2001:db8::1]"]),
    ],
)
def test_no_proxy(no_proxy: str, direct: list[str], by_proxy: list[str]) -> None:
    environment = {**PROXY, "NO_PROXY": no_proxy}
    found = {host: proxy_for(f"https://{host}", environment) for host in (*direct, *by_proxy)}
    assert found == dict.fromkeys(direct) | dict.fromkeys(by_proxy, "http://proxy:3128")


@pytest.mark.parametrize(
    ("environment", "server", "proxy"),
    [
        ({}, "https://foo.com", None),
        ({"HTTPS_PROXY": ""}, "https://foo.com", None),
        ({"HTTPS_PROXY": "http://a"}, "https://foo.com", "http://a"),
        ({"https_proxy": "http://b"}, "https://foo.com", "http://b"),
        ({"HTTPS_PROXY": "http://a", "https_proxy": "http://b"}, "https://foo.com", "http://a"),
        ({"HTTPS_PROXY": "", "https_proxy": "http://b"}, "https://foo.com", "http://b"),
        ({"HTTPS_PROXY": "http://a"}, "http://foo.com", None),
        ({"HTTP_PROXY": "http://a"}, "http://foo.com", "http://a"),
        ({"HTTP_PROXY": "http://a"}, "https://foo.com", None),
        ({"ALL_PROXY": "http://a", "all_proxy": "http://a"}, "https://foo.com", None),
        ({"HTTPS_PROXY": "proxy:3128"}, "https://foo.com", "http://proxy:3128"),
        ({"HTTPS_PROXY": "proxy"}, "https://foo.com", "http://proxy"),
        ({"HTTPS_PROXY": "10.0.0.9:1"}, "https://foo.com", "http://10.0.0.9:1"),
        ({"HTTPS_PROXY": "https://a"}, "https://foo.com", "https://a"),
        ({"HTTPS_PROXY": "a", "no_proxy": "foo.com"}, "https://foo.com", None),
        (
            {"HTTPS_PROXY": "a", "NO_PROXY": "x", "no_proxy": "foo.com"},
            "https://foo.com",
            "http://a",
        ),
        ({"HTTPS_PROXY": "a", "NO_PROXY": "foo.com:443"}, "https://foo.com", None),
        ({"HTTP_PROXY": "a", "NO_PROXY": "foo.com:80"}, "http://foo.com", None),
        ({"HTTP_PROXY": "a", "NO_PROXY": "foo.com:443"}, "http://foo.com", "http://a"),
    ],
)
def test_variables(environment: dict[str, str], server: str, proxy: str | None) -> None:
    assert proxy_for(server, environment) == proxy


def test_an_entry_that_no_name_has_is_not_encoded_for_dns() -> None:
    """It took 10 µs a character, so that a long list in the environment held up each start."""
    begun = thread_time()
    assert (
        proxy_for("https://foo.com", {**PROXY, "NO_PROXY": "中" * 100_000}) == "http://proxy:3128"
    )
    assert thread_time() - begun < 0.2
