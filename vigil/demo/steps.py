"""The steps of the demo: each changes the hardware, and has what the documents must show then."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from contract.sentences import message
from vigil.demo import actions
from vigil.demo.fleet import DRIVER_ERROR_SECONDS

if TYPE_CHECKING:
    from vigil.demo.actions import Action

Levels: TypeAlias = dict[str, str]
"""Fault code to handling level of one chip; empty for a healthy chip."""


@dataclass(frozen=True)
class DemoStep:
    """One step: actions, and in ``expect`` the codes that chips must have because of them.

    ``soon`` is what time alone makes of a chip: from here on either is right, until a later step
    expects it. ``parts`` and ``ports`` are levels of the server's parts and of switch ports, by
    role and name; ``None`` where one is well again. ``public`` are levels of public faults by role,
    chip (``None``: every one of the node) and code: in messages, and in cluster-info only with
    a level; ``None`` where one is over. ``lost`` is the node that must be published as lost,
    ``lost_soon`` one that may be, ``back`` the one that must no longer be. ``blind`` is the chip
    that must be reported blind from here on, ``sighted`` the one that must no longer be.
    ``policy`` is what every agent must report of the operator's. ``holds_seconds`` is for how long
    of real time, since the step before began, what was expected then must stay; ``takes_seconds``
    how long what is expected now may take by itself. ``starts_daemons``: a process starts, which
    takes a machine that does other work long. ``title`` and ``meaning`` are of the catalogue.
    """

    title: str
    meaning: str
    pause_seconds: float = 2.5
    actions: tuple[Action, ...] = ()
    expect: dict[tuple[int, int], Levels] = field(default_factory=dict)
    soon: dict[tuple[int, int], Levels] = field(default_factory=dict)
    parts: dict[tuple[int, str], str | None] = field(default_factory=dict)
    ports: dict[tuple[int, str], str | None] = field(default_factory=dict)
    public: dict[tuple[int, int | None, str], str | None] = field(default_factory=dict)
    lost: int | None = None
    lost_soon: int | None = None
    back: int | None = None
    blind: tuple[int, int] | None = None
    sighted: tuple[int, int] | None = None
    policy: Literal["in force", "refused"] | None = None
    holds_seconds: float = 0.0
    takes_seconds: float = 0.0
    starts_daemons: bool = False
    unchanged: bool = False
    """The documents must stay as they are: there is no time of arrival to show."""


_LINK = "81078603"
_BUS = "80C98009"
_ONCE = "8C204E00"
_PORT = "[0x08520003,na,npu,na]"
_SERVER = "2C000031"
_DPC = "110001020"
_PUBLIC = "220001001"

_START = DemoStep(
    message("the nodes start"),
    message("every chip is healthy and offered to the scheduler"),
    pause_seconds=0.0,
    starts_daemons=True,
)
_LINK_DOWN = DemoStep(
    message("the network link of chip 2 of node 2 goes down"),
    message("links come back by themselves more often than not: noted, not acted upon yet"),
    actions=(actions.link(1, 2, up=False),),
    expect={(1, 2): {_LINK: "NotHandleFault"}},
    soon={(1, 2): {_LINK: "PreSeparateNPU"}},
)
_ECC = DemoStep(
    message("HBM multi-bit ECC error on chip 3 of node 1"),
    message("critical: the job on this chip must restart, the chip leaves the free list"),
    actions=(actions.occur(0, 3, "80E01801"),),
    expect={(0, 3): {"80E01801": "RestartBusiness"}},
)
_SERVER_FAULT = DemoStep(
    message("the BMC of node 1 reports a fatal error of the server"),
    message("not an NPU fault, but no job can run on this node"),
    actions=(actions.raise_alarm(0, "System", 0, _SERVER),),
    parts={(0, "System 0"): "SeparateFault"},
)
_CALL_HANGS = DemoStep(
    message("the driver hangs in a call for chip 0 of node 1"),
    message("no data is neither healthy nor faulty: the chip is blind and keeps its last state"),
    actions=(actions.hang(0, 0),),
    blind=(0, 0),
    unchanged=True,
)
_MEANWHILE = DemoStep(
    message("meanwhile chip 7 of node 1 breaks"),
    message("a hanging call for one chip does not hide another one"),
    pause_seconds=1.0,
    actions=(actions.occur(0, 7, "80E3A201"),),
    expect={(0, 7): {"80E3A201": "SeparateNPU"}},
)
_CALL_RETURNS = DemoStep(
    message("the driver call returns"),
    message("chip 0 is seen again, by itself"),
    actions=(actions.unhang(0, 0),),
    sighted=(0, 0),
    unchanged=True,
)
_AGENT_KILLED = DemoStep(
    message("the agent of node 3 is killed, then chip 4 breaks"),
    message("no agent watches node 3 now: its documents keep the last state"),
    actions=(actions.kill_agent(2), actions.occur(2, 4, "8C204E00")),
    unchanged=True,
)
_SILENT = DemoStep(
    message("node 3 is silent for three heartbeats"),
    message("what happens there is not known: the cluster takes it for lost"),
    pause_seconds=0.0,
    lost=2,
    takes_seconds=26.0,
)
_BACK = DemoStep(
    message("the agent of node 3 is started again"),
    message("the node is back, and what happened meanwhile is found and published"),
    actions=(actions.start_agent(2),),
    expect={(2, 4): {"8C204E00": "RestartBusiness"}},
    back=2,
    starts_daemons=True,
)

SHORT_SCENARIO: tuple[DemoStep, ...] = (
    _START,
    _ECC,
    # Its silence lasts while the next steps are played, and may end in the middle of them.
    _AGENT_KILLED,
    replace(_SERVER_FAULT, lost_soon=2),
    _CALL_HANGS,
    _MEANWHILE,
    _SILENT,
    _BACK,
    _CALL_RETURNS,
    DemoStep(
        message("everything is repaired"),
        message("all chips are healthy and free again, node 1 takes jobs again"),
        actions=(
            actions.recover(0, 3, "80E01801"),
            actions.recover(0, 7, "80E3A201"),
            actions.recover(2, 4, "8C204E00"),
            actions.end_alarm(0, "System", 0, _SERVER),
        ),
        expect={(0, 3): {}, (0, 7): {}, (2, 4): {}},
        parts={(0, "System 0"): None},
    ),
)

FULL_SCENARIO: tuple[DemoStep, ...] = (
    _START,
    _ECC,
    _LINK_DOWN,
    DemoStep(
        message("AI core bus error on chip 1 of node 2"),
        message("minor: repeating the request is enough, the chip is withheld meanwhile"),
        actions=(actions.occur(1, 1, "80C98008"),),
        expect={(1, 1): {"80C98008": "RestartRequest"}},
    ),
    DemoStep(
        message("the AI core error recovers"),
        message("the chip is free again"),
        actions=(actions.recover(1, 1, "80C98008"),),
        expect={(1, 1): {}},
    ),
    DemoStep(
        message("four codes at once on chip 5 of node 2"),
        message(
            "one HBM failure reports four codes: the worst level counts, each code keeps its own"
        ),
        actions=(
            actions.occur(1, 5, "80E18401"),
            actions.occur(1, 5, "80E18402"),
            actions.occur(1, 5, "A4028801"),
            actions.occur(1, 5, "A8028801"),
        ),
        expect={
            (1, 5): {
                "80E18401": "NotHandleFault",
                "80E18402": "SeparateNPU",
                "A4028801": "NotHandleFault",
                "A8028801": "SeparateNPU",
            }
        },
    ),
    _SERVER_FAULT,
    DemoStep(
        message("the operator declares this error harmless"),
        message(
            "levels in a ConfigMap: the alarm still stands, and the node takes jobs again at once"
        ),
        actions=(actions.configure_level(_SERVER, "NotHandleFault"),),
        parts={(0, "System 0"): "NotHandleFault"},
    ),
    DemoStep(
        message("the storage client of node 3 dies"),
        message("a public fault of the node, in a message: every chip of it is less than healthy"),
        actions=(actions.dpc(2, works=False),),
        public={(2, None, _DPC): "SubHealthFault"},
    ),
    DemoStep(
        message("the kernel of node 2 reports an error of the NPU driver"),
        message("noted in node-info, where the operator may give it another level"),
        actions=(actions.report_driver_error(1),),
        parts={(1, "NPU Driver 0"): "NotHandleFault"},
    ),
    DemoStep(
        message("it is not repeated"),
        message("the kernel never reports the end of one: it ends after a long enough silence"),
        pause_seconds=0.0,
        parts={(1, "NPU Driver 0"): None},
        takes_seconds=DRIVER_ERROR_SECONDS,
    ),
    DemoStep(
        message("the storage client of node 3 works again"),
        message("the same fault, by the same name, has recovered"),
        actions=(actions.dpc(2, works=True),),
        public={(2, None, _DPC): None},
    ),
    DemoStep(
        message("the operator reports a fault of chip 4 of node 1 that no driver sees"),
        message(
            "a public fault in a ConfigMap: no node reports it, the cluster leaves the chip out"
        ),
        actions=(actions.report(0, 4, _PUBLIC),),
        public={(0, 4, _PUBLIC): "SeparateNPU"},
    ),
    DemoStep(
        message("the card of chip 6 of node 3 drops off the bus"),
        message("the driver does not find the chip: restart it when it is idle"),
        actions=(actions.drop(2, 6),),
        expect={(2, 6): {"40F84E00": "RestartNPU"}},
    ),
    DemoStep(
        message("the card is back"),
        message("the chip answers and is free again"),
        actions=(actions.bring_back(2, 6),),
        expect={(2, 6): {}},
    ),
    DemoStep(
        message("the operator clears the public fault"),
        message("the chip is free again, once the fault was shown for five seconds, at any speed"),
        actions=(actions.report(0, 4, _PUBLIC, is_over=True),),
        public={(0, 4, _PUBLIC): None},
    ),
    DemoStep(
        message("the link of chip 2 of node 2 is down for 20 s"),
        message("it does not come back: no new job gets a chip without a network"),
        pause_seconds=0.0,
        expect={(1, 2): {_LINK: "PreSeparateNPU"}},
        takes_seconds=20.0,
    ),
    DemoStep(
        message("the link is up again"),
        message("not trusted yet: only a link that is up for 60 s is released"),
        pause_seconds=1.0,
        actions=(actions.link(1, 2, up=True),),
        soon={(1, 2): {}},
        unchanged=True,
    ),
    DemoStep(
        message("a switch port to an NPU fails on node 3"),
        message("an A3 server with a broken switch port is taken out whole"),
        actions=(actions.fail_port(2, 2, 7, _PORT),),
        ports={(2, f"{_PORT}_2_7"): "Separate"},
    ),
    _CALL_HANGS,
    _MEANWHILE,
    _CALL_RETURNS,
    DemoStep(
        message("the operator asks to isolate a chip whose AI core bus fails twice"),
        message("a policy in a ConfigMap: every agent has it at once"),
        actions=(actions.configure_isolation(_BUS, times=2),),
        policy="in force",
        unchanged=True,
    ),
    DemoStep(
        message("an AI core bus error on chip 1 of node 2"),
        message("the first time it is a minor fault like any other"),
        actions=(actions.occur(1, 1, _BUS),),
        expect={(1, 1): {_BUS: "RestartRequest"}},
    ),
    DemoStep(
        message("the bus error recovers"),
        message("the chip is free again, and its fault is counted"),
        pause_seconds=1.0,
        actions=(actions.recover(1, 1, _BUS),),
        expect={(1, 1): {}},
    ),
    DemoStep(
        message("the bus error is back"),
        message("the second time: the chip is isolated until an operator has looked at it"),
        actions=(actions.occur(1, 1, _BUS),),
        expect={(1, 1): {_BUS: "ManuallySeparateNPU"}},
    ),
    DemoStep(
        message("the bus error recovers again"),
        message("an isolated chip does not come back by itself"),
        pause_seconds=1.0,
        actions=(actions.recover(1, 1, _BUS),),
        unchanged=True,
    ),
    DemoStep(
        message("the agent of node 2 is killed, one of four codes goes, it starts again"),
        message("the recovery is found, and the chip without a fault is still isolated"),
        actions=(actions.kill_agent(1), actions.recover(1, 5, "A8028801"), actions.start_agent(1)),
        expect={
            (1, 5): {
                "80E18401": "NotHandleFault",
                "80E18402": "SeparateNPU",
                "A4028801": "NotHandleFault",
            }
        },
        starts_daemons=True,
    ),
    DemoStep(
        message("the operator's policy is overwritten with half a text"),
        message("agents report that and keep the last good one: nothing changes"),
        actions=(actions.configure_isolation(_BUS, times=9, cut_off=True),),
        policy="refused",
        unchanged=True,
    ),
    DemoStep(
        message("the operator takes chip 1 out of ManuallySeparateNPU"),
        message("that releases it: the chip is free again"),
        actions=(actions.release(1, 1),),
        expect={(1, 1): {}},
    ),
    DemoStep(
        message("something happens once on chip 6 of node 3"),
        message("the driver reports it and forgets it: a job has to restart all the same"),
        actions=(actions.once(2, 6, _ONCE),),
        expect={(2, 6): {_ONCE: "RestartBusiness"}},
    ),
    DemoStep(
        message("it is shown for five seconds, at any speed"),
        message("a scheduler that looks once a second has seen it"),
        pause_seconds=0.0,
        holds_seconds=4.9,
        expect={(2, 6): {}},
        takes_seconds=2.0,
    ),
    _AGENT_KILLED,
    _SILENT,
    _BACK,
    DemoStep(
        message("the switch port of node 3 and the server of node 1 recover"),
        message("node 3 takes jobs again, node 1 has no alarm any more"),
        actions=(
            actions.recover_port(2, 2, 7, _PORT),
            actions.end_alarm(0, "System", 0, _SERVER),
        ),
        ports={(2, f"{_PORT}_2_7"): None},
        parts={(0, "System 0"): None},
    ),
    DemoStep(
        message("the link of chip 2 of node 2 is up for 60 s"),
        message("it is trusted again"),
        pause_seconds=0.0,
        expect={(1, 2): {}},
        takes_seconds=60.0,
    ),
    DemoStep(
        message("everything is repaired"),
        message("all chips are healthy and free again"),
        actions=(
            actions.recover(0, 3, "80E01801"),
            actions.recover(0, 7, "80E3A201"),
            actions.recover(1, 5, "80E18401"),
            actions.recover(1, 5, "80E18402"),
            actions.recover(1, 5, "A4028801"),
            actions.recover(2, 4, "8C204E00"),
        ),
        expect={(0, 3): {}, (0, 7): {}, (1, 5): {}, (2, 4): {}},
    ),
)


_UNLISTED = "80ABCDEF"
_UB_PORT, _UB_SEPARATE = "81B18603", "020001002"
_WITH_LINKS = ("a2", "a3", "910a")


def steps_of_profile(profile: str) -> tuple[DemoStep, ...]:
    """Return the few steps for servers of one profile: what each family can show."""
    steps = [
        _START,
        DemoStep(
            message("HBM multi-bit ECC error on chip 1 of node 1"),
            message(
                "critical: the chip leaves the free list, found by an event or by the next poll"
            ),
            actions=(actions.occur(0, 1, "80E01801"),),
            expect={(0, 1): {"80E01801": "RestartBusiness"}},
        ),
        DemoStep(
            message("a minor error that no table has on chip 2 of node 1"),
            message("as serious as the driver reports, by its event or by the chip's health word"),
            actions=(actions.occur(0, 2, _UNLISTED),),
            expect={(0, 2): {_UNLISTED: "NotHandleFault"}},
        ),
        DemoStep(
            message("the card of chip 3 of node 2 drops off the bus"),
            message("the driver does not find the chip: restart it when it is idle"),
            actions=(actions.drop(1, 3),),
            expect={(1, 3): {"40F84E00": "RestartNPU"}},
        ),
        DemoStep(
            message("the card is back"),
            message("the chip answers and is free again"),
            actions=(actions.bring_back(1, 3),),
            expect={(1, 3): {}},
        ),
    ]
    if profile in _WITH_LINKS:
        steps.append(_LINK_DOWN)
    if profile == "a5":
        steps += [
            DemoStep(
                message("a port of the unified bus of chip 2 of node 2 goes down"),
                message("one chip alone: no new job gets it"),
                actions=(actions.occur(1, 2, _UB_PORT),),
                expect={(1, 2): {_UB_PORT: "NotHandleFault", _UB_SEPARATE: "SeparateNPU"}},
            ),
            DemoStep(
                message("the port is up again"),
                message("the chip is free again"),
                actions=(actions.recover(1, 2, _UB_PORT),),
                expect={(1, 2): {}},
            ),
        ]
    steps += [
        DemoStep(
            message("the agent of node 1 is killed, chip 1 recovers, it starts again"),
            message("the recovery is found"),
            actions=(
                actions.kill_agent(0),
                actions.recover(0, 1, "80E01801"),
                actions.start_agent(0),
            ),
            expect={(0, 1): {}},
            starts_daemons=True,
        ),
        DemoStep(
            message("the minor error recovers"),
            message("node 1 has no fault any more"),
            actions=(actions.recover(0, 2, _UNLISTED),),
            expect={(0, 2): {}},
        ),
    ]
    return tuple(steps)
