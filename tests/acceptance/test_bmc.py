"""A whole agent and a BMC that is not the emulator's, through the kernel's device and ipmitool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.bmc import Bmc, compile_device
from tests.acceptance.daemons import wait
from tests.acceptance.noded import RecordedServer
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.acceptance.conftest import MakeAgent
    from tests.acceptance.daemons import Agent
    from tests.acceptance.noded import Way
    from tests.acceptance.places import Folder

FAN: list[Any] = ["06000025", 4, 1, 2]
SYSTEM: list[Any] = ["2C000031", 44, 0, 2]
SPEED = 10.0 / patience(1)
"""The BMC is asked every 0.1 s and has 1 s for each answer, but longer on a busy machine."""
GOOD_AGAIN: dict[str, Any] = {"do": "bmc", "raw_replies": []}


@pytest.fixture(scope="session")
def device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the program that replaces the kernel's device; return its path."""
    return compile_device(tmp_path_factory.mktemp("device"))


class Server:
    """An agent that is not started, and its BMC."""

    def __init__(self, agent: Agent, bmc: Bmc, device: Path, way: Way) -> None:
        self.bmc = bmc
        self.agent = agent
        self._way = RecordedServer(agent, bmc, device, way)
        self._way.prepare("ours", SPEED)

    def start(self, *alarms: list[Any]) -> None:
        """Start the agent with these alarms, and wait until it asks."""
        self.bmc.do({"do": "bmc", "alarms": list(alarms)})
        self._way.start({})

    def parts(self) -> set[str] | None:
        """Return the faulty parts that are published; ``None`` without a document."""
        shown = self.agent.place.node_info("node-1")
        return None if shown is None else set(shown.levels)

    def shows(self, *parts: str) -> None:
        """Wait until these are shown, or that nothing is."""
        expected = set(parts) or None
        wait(lambda: self.parts() == expected, f"{expected} is shown", 15)

    def blind(self) -> list[str]:
        """Return the reasons why the BMC is blind."""
        found = self.agent.status()["blind"]
        return [one["reason"] for one in found if one["source"] == "bmc"]


@pytest.fixture(params=["device", "tool"])
def server(
    make_agent: MakeAgent, folder: Folder, device: Path, request: pytest.FixtureRequest
) -> Iterator[Server]:
    with Bmc() as bmc:
        yield Server(make_agent(folder), bmc, device, request.param)


BAD_REPLIES = {
    "empty": "",
    "refused": "c1",
    "short": "00 db 07",
    "too few": "00 db 07 00 01 00 01 00",
    "odd": "00 db 07 00 01 00 01 00 31 00 00 2c 00 f1 53 65 02 2c 00 00 00 00",
    "shifted": "00 01 00 01 00 31 00 00 2c 00 f1 53 65 02 2c 00 00 00 00 00",
    "lying": "00 db 07 00 00 00 01 00",
}


def test_a_bad_reply_changes_nothing(server: Server) -> None:
    """One agent gets all of them; between them the alarm ends and comes back."""
    server.start()
    for name, reply in BAD_REPLIES.items():
        server.bmc.do({"do": "bmc", "alarms": [SYSTEM]})
        server.shows("System 0")
        server.bmc.do({"do": "bmc", "raw_replies": [{"for": "94@*", "reply": reply}]})
        wait(lambda: server.blind() != [], f"{name}: the BMC is blind", 15)
        assert server.parts() == {"System 0"}, name
        server.bmc.do(GOOD_AGAIN | {"alarms": []})
        server.shows()
        # A later query may miss its deadline.
        wait(lambda: server.blind() == [], f"{name}: the BMC answers", 15)


def test_a_bmc_that_hangs_and_comes_back(server: Server) -> None:
    server.start(SYSTEM)
    server.shows("System 0")
    server.bmc.do({"do": "bmc-hang", "on": True})
    server.bmc.do({"do": "bmc", "alarms": [FAN]})
    wait(lambda: server.blind() != [], "the BMC is blind", 15)
    assert server.parts() == {"System 0"}
    server.bmc.do({"do": "bmc-hang", "on": False})
    server.shows("Fan 1")
    wait(lambda: server.blind() == [], "the BMC answers", 15)


def test_a_list_that_changes_between_two_pages(server: Server) -> None:
    alarms = [["06000025", 4, index, 2] for index in range(25)]
    server.start(*alarms)
    server.shows(*(f"Fan {index}" for index in range(25)))
    for number in range(5):
        alarms = [*alarms[1:], ["06000025", 4, 100 + number, 2]]
        server.bmc.between_pages = alarms
        expected = {f"Fan {alarm[2]}" for alarm in alarms}
        seen: list[int] = []

        def arrives(expected: set[str] = expected, seen: list[int] = seen) -> bool:
            shown = server.parts() or set()
            seen.append(len(shown))
            return shown == expected

        wait(arrives, "the new list is shown", 15)
        assert set(seen) == {len(alarms)}, "never one too few"
