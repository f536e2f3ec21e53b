"""Clients that take an agent's connections or descriptors keep no fault back."""

from __future__ import annotations

import resource
import socket
import time
import urllib.request
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import psutil

from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from tests.end_to_end.node import Node

FAULT = "80E01801"
UNFINISHED = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n"
CLIENTS = 600
LIMIT = 256


def _kill_driver(node: Node) -> None:
    for child in psutil.Process(node.process.pid).children():
        # Tools of the agent end meanwhile.
        with suppress(psutil.NoSuchProcess):
            if any("child.py" in argument for argument in child.cmdline()):
                child.kill()


def _limit(node: Node, soft: int) -> None:
    resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE, (soft, 4096))


def test_unfinished_requests_keep_neither_a_fault_nor_a_probe_back(folder_node: Node) -> None:
    folder_node.options = ["--listen", "127.0.0.1:0"]
    folder_node.start()
    folder_node.healthy()
    folder_node.up()
    _limit(folder_node, LIMIT)
    url = (folder_node.state_dir / "listen").read_text().strip()
    host, port = url.removeprefix("http://").split(":")
    logged = len(folder_node.logged().splitlines())
    with ExitStack() as opened:
        for number in range(CLIENTS):
            client = opened.enter_context(socket.socket())
            client.bind((f"127.0.0.{2 + number % 10}", 0))
            client.connect((host, int(port)))
            client.send(UNFINISHED)
        _kill_driver(folder_node)
        begun = time.monotonic()
        with urllib.request.urlopen(f"{url}/healthz", timeout=patience(10)) as answer:
            assert answer.status == 200
        assert time.monotonic() - begun < patience(5)
        assert folder_node.ask("/readyz")[0] in (200, 503)
        folder_node.emulator.occur(1, FAULT)
        folder_node.until(lambda now: FAULT in now.codes(1), "the fault is shown")
        assert psutil.Process(folder_node.process.pid).num_fds() < LIMIT / 2
    assert len(folder_node.logged().splitlines()) - logged <= 10


def test_an_agent_without_descriptors_goes_on_when_there_are_some(folder_node: Node) -> None:
    folder_node.start()
    folder_node.healthy()
    _limit(folder_node, 4)
    _kill_driver(folder_node)
    lacks = "driver events: no driver: no usable libdcmi.so"
    folder_node.wait(lambda: lacks in folder_node.logged(), "the driver is to be started", 30)
    assert folder_node.process.status is None
    folder_node.emulator.occur(1, FAULT)
    _limit(folder_node, 4096)
    folder_node.until(lambda now: FAULT in now.codes(1), "the fault is shown", 30)
    assert "Traceback" not in folder_node.logged()
    assert "another program" not in folder_node.logged()
