"""Events of the agent's stream: what changes in the state of its node."""

from __future__ import annotations

import msgspec

from agent.pages.state_changes import StateChanges
from agent.policy.state import Blindness, ChipState, Fault, PolicyState, SubjectState
from contract.observation import NODE, Subject, chip_subject, host_subject, storage_subject
from contract.pages.changes import BlindChange, FaultChange
from contract.pages.faults import subject_name
from service.pages.event_stream import Stream

NOW_MS = 1_800_000_000_000
FAN = str(host_subject("Fan", 1))
PORT = str(Subject("switch", 2, "4/5/6"))
DPC = str(storage_subject("DPC"))


def fault(code: str, level: str) -> Fault:
    return Fault(code, "e", "chip-faults", level, "the level table", NOW_MS, 1)


class Sent(Stream):
    """A stream that keeps what is sent."""

    def __init__(self) -> None:
        super().__init__("run")
        self.events: list[tuple[str, msgspec.Struct]] = []

    def send(self, name: str, change: msgspec.Struct, nodes: object = ()) -> None:
        assert nodes == {"node-1"}
        self.events.append((name, change))


class Agent:
    """A state, and what is sent of its changes."""

    def __init__(self, state: PolicyState) -> None:
        self.state = state
        self.stream = Sent()
        self.changes = StateChanges(
            self.stream, lambda: self.state, lambda: "Ascend910", lambda: NOW_MS
        )

    def become(self, **parts: object) -> list[tuple[str, msgspec.Struct]]:
        """Change the state; return what is sent about the change."""
        self.state = msgspec.structs.replace(self.state, **parts)
        self.stream.events.clear()
        self.changes.compare()
        return list(self.stream.events)


def test_a_fault_begins_changes_its_level_and_ends() -> None:
    agent = Agent(PolicyState("node-1", "boot", chips={3: ChipState()}))
    found = fault("80E01801", "RestartNPU")
    began = agent.become(chips={3: ChipState(faults={found.code: found})})
    assert began == [
        (
            "change",
            FaultChange(
                *("node-1", NOW_MS, "Ascend910-3", "80E01801", None, "RestartNPU"),
                *(None, False, "agent"),
            ),
        )
    ]
    worse = fault("80E01801", "SeparateNPU")
    ((_, change),) = agent.become(chips={3: ChipState(faults={found.code: worse})})
    assert isinstance(change, FaultChange)
    assert (change.was, change.level) == ("RestartNPU", "SeparateNPU")
    ended = agent.become(chips={3: ChipState()})
    gone = FaultChange("node-1", NOW_MS, "Ascend910-3", "80E01801", "SeparateNPU", None)
    assert ended == [("change", gone)]
    assert agent.become(revision=9) == [], "nothing that is shown changed"


def test_parts_ports_and_storage_clients_have_names() -> None:
    agent = Agent(PolicyState("node-1", "boot"))
    known = SubjectState(faults={"1": fault("1", "x")})
    sent = agent.become(others={FAN: known, PORT: known, DPC: known})
    names = [change.subject for _, change in sent if isinstance(change, FaultChange)]
    assert names == ["Fan 1", "switch 2 port 4", "storage DPC"]
    assert agent.become(others={FAN: known, PORT: known}) == [
        ("change", FaultChange("node-1", NOW_MS, "storage DPC", "1", "x", None))
    ], "a subject that is gone has no fault"


def test_a_source_becomes_blind_and_answers_again() -> None:
    agent = Agent(PolicyState("node-1", "boot", chips={3: ChipState()}))
    blind = {"chip-faults": Blindness(NOW_MS - 5, "no answer")}
    sent = agent.become(chips={3: ChipState(blind=blind)}, others={DPC: SubjectState(blind=blind)})
    about = ("node-1", NOW_MS, "chip-faults", NOW_MS - 5, "no answer", "Ascend910-3")
    of_part = ("node-1", NOW_MS, "chip-faults DPC", NOW_MS - 5, "no answer")
    assert sent == [("blind", BlindChange(*about)), ("blind", BlindChange(*of_part))]
    of_node = {str(NODE): SubjectState(blind=blind)}
    over = agent.become(chips={3: ChipState()}, others=of_node)
    assert [
        (one.source, one.chip, one.is_over) for _, one in over if isinstance(one, BlindChange)
    ] == [
        ("chip-faults", "Ascend910-3", True),
        ("chip-faults", None, False),
        ("chip-faults DPC", None, True),
    ]


def test_chips_are_named_after_their_type() -> None:
    assert subject_name(chip_subject(3), "Ascend310P") == "Ascend310P-3"
