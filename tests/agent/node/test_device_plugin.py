"""The account of a Device Plugin on the node is named once, at the start."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, cast

import pytest

from agent.node.device_plugin import DevicePluginAccount
from contract.errors import StoreUnavailable

if TYPE_CHECKING:
    from stores.base import ClusterObjects

COMMANDS = (
    ("kube-system/plugin-x", "/bin/bash -c -- device-plugin -volcanoType=true", "kube-system/sa"),
    ("kube-system/plugin-x", "", "kube-system/sa"),
    ("default/job", "python train.py --device-plugin-path=x", "default/default"),
)


class Objects:
    """Pods of a node, or none that can be read."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked: list[str] = []

    async def commands(self, node: str) -> tuple[tuple[str, str, str], ...]:
        self.asked.append(node)
        if self.error is not None:
            raise self.error
        return COMMANDS


async def logged(objects: Objects, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Run the task for an hour; return the messages that it logs.

    The task must not end by itself.
    """
    account = DevicePluginAccount(cast("ClusterObjects", objects), "node-1")
    with caplog.at_level(logging.INFO, "agent.device_plugin"):
        work = asyncio.create_task(account.run())
        done, _ = await asyncio.wait({work}, timeout=3600)
        assert not done
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work
    assert objects.asked == ["node-1"]
    return [record.getMessage() for record in caplog.records]


@pytest.mark.looptime
async def test_the_plugin_and_its_account_are_named(caplog: pytest.LogCaptureFixture) -> None:
    (line,) = await logged(Objects(), caplog)
    assert "pod kube-system/plugin-x is a Device Plugin with the account kube-system/sa" in line
    assert "beside-device-plugin" in line


@pytest.mark.looptime
async def test_pods_that_cannot_be_read_end_nothing(caplog: pytest.LogCaptureFixture) -> None:
    (line,) = await logged(Objects(StoreUnavailable("no answer")), caplog)
    assert "is not known: no answer" in line


@pytest.mark.looptime
async def test_pods_that_are_not_listed_in_time_are_a_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (line,) = await logged(Objects(TimeoutError()), caplog)
    assert "is not known: no answer within 10 s" in line
