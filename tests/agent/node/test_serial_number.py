"""When the BMC is asked for the serial number, and what is reported meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import msgspec
import pytest

from agent.config import AgentConfiguration
from agent.node.serial_number import SerialNumber, serial_number_of
from collectors.bmc import BmcSection
from contract.errors import BmcError

if TYPE_CHECKING:
    from dcmi_shim.ipmi.bmc import Ipmi


class Bmc:
    """Returns one answer after the other, the last one again and again."""

    def __init__(self, *answers: str | Exception | None) -> None:
        self._answers = list(answers)
        self.asked_at: list[float] = []

    async def serial_number(self) -> str | None:
        self.asked_at.append(asyncio.get_running_loop().time())
        answer = self._answers[0] if len(self._answers) == 1 else self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.looptime
async def test_it_is_asked_for_until_it_is_known(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    bmc = Bmc(BmcError("no BMC"), BmcError("refused"), None, None, None, "2102313")
    shown: list[str | None] = []
    found = SerialNumber(cast("Ipmi", bmc), 10.0)
    found.notify(lambda: shown.append(found.number))
    task = asyncio.create_task(found.run())
    await asyncio.sleep(25)
    assert found.status().trouble == "refused"
    await asyncio.sleep(1000)
    assert shown == ["2102313"]
    assert (found.status().number, found.status().trouble) == ("2102313", None)
    begin = bmc.asked_at[0]
    assert [round(at - begin) for at in bmc.asked_at] == [0, 10, 30, 70, 130, 190]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    ("documents", "enabled", "asks"),
    [
        (("device-info", "node-info"), True, True),
        (("node-info",), True, True),
        (("device-info",), True, False),
        (("node-info",), False, False),
    ],
)
async def test_agent_that_owns_node_info_asks_for_the_serial_number(
    documents: tuple[str, ...], enabled: bool, asks: bool
) -> None:
    configuration = msgspec.convert(
        {"node_name": "n", "documents": documents, "bmc": BmcSection(enabled=enabled)},
        AgentConfiguration,
    )
    assert (serial_number_of(configuration, {"PATH": ""}) is not None) == asks
