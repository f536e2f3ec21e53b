"""Actions of the demo's steps: on hardware, on agents, and as the operator.

Each function returns an action. A role is a node of the scenario. With fewer nodes than roles
several roles share a node, which works because no two roles use the same chip.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from contract.names import device_info_name
from dcmi_shim.emulator.bmc import BmcAlarm
from dcmi_shim.emulator.switch_faults import EmulatedSwitchFault, code_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dcmi_shim.emulator.control import Emulator
    from vigil.demo.cluster_operator import Operator
    from vigil.demo.fleet import DemoNode, Fleet

Action: TypeAlias = "Callable[[Fleet, Operator], Awaitable[None]]"

CODE_QUERY = "dcmi_get_device_errorcode_v2"


def occur(role: int, chip: int, code: str) -> Action:
    """Begin a fault of a chip."""
    return _emulate(role, lambda emulator: emulator.occur(chip, code))


def recover(role: int, chip: int, code: str) -> Action:
    """End a fault of a chip."""
    return _emulate(role, lambda emulator: emulator.recover(chip, code))


def once(role: int, chip: int, code: str) -> Action:
    """Send a one-off event of a chip: the driver reports it once, and lists nothing."""
    return _emulate(role, lambda emulator: emulator.once(chip, code))


def drop(role: int, chip: int) -> Action:
    """Drop a card off the bus."""
    return _emulate(role, lambda emulator: emulator.drop(chip))


def bring_back(role: int, chip: int) -> Action:
    """Bring a dropped card back."""
    return _emulate(role, lambda emulator: emulator.return_card(chip))


def hang(role: int, chip: int) -> Action:
    """Let the driver's call for the codes of one chip not return any more."""
    return _emulate(role, lambda emulator: emulator.hang(CODE_QUERY, chip))


def unhang(role: int, chip: int) -> Action:
    """Let the hanging call return again."""
    return _emulate(role, lambda emulator: emulator.clear(CODE_QUERY, chip))


def link(role: int, chip: int, *, up: bool) -> Action:
    """Take the network link of a chip down, or bring it up."""
    return _emulate(role, lambda emulator: emulator.link(chip, up=up))


def lose_next(role: int) -> Action:
    """Lose the next event of the emulator and its entry in the list: the demo must notice."""
    return _emulate(role, lambda emulator: emulator.lose_everything_next())


def raise_alarm(role: int, part: str, index: int, code: str) -> Action:
    """Raise an alarm of the BMC about a part of the server."""
    return _emulate(role, lambda emulator: emulator.bmc.occur(BmcAlarm(code, part, index)))


def end_alarm(role: int, part: str, index: int, code: str) -> Action:
    """End an alarm of the BMC."""
    return _emulate(role, lambda emulator: emulator.bmc.recover(code, part, index))


def fail_port(role: int, switch: int, port: int, code: str) -> Action:
    """Begin a fault of a port of an on-board switch."""
    fault = EmulatedSwitchFault(code_of(code), switch, port)
    return _emulate(role, lambda emulator: emulator.switch_occur(fault))


def recover_port(role: int, switch: int, port: int, code: str) -> Action:
    """End a fault of a port of an on-board switch."""
    fault = EmulatedSwitchFault(code_of(code), switch, port)
    return _emulate(role, lambda emulator: emulator.switch_recover(fault))


def report_driver_error(role: int) -> Action:
    """Let the kernel report an error of the NPU driver; it never reports the end of one."""
    return _on_node(role, lambda node: node.host.report_driver_error())


def dpc(role: int, *, works: bool) -> Action:
    """Let the process of the storage client DPC die, or work again."""
    return _on_node(role, lambda node: node.host.dpc(works=works))


def kill_agent(role: int) -> Action:
    """Kill the agent of a node by SIGKILL."""
    return lambda fleet, _: fleet.kill_agent(fleet.node(role))


def start_agent(role: int) -> Action:
    """Start the agent of a node again."""
    return lambda fleet, _: fleet.start_agent(fleet.node(role))


def configure_isolation(code: str, times: int, *, cut_off: bool = False) -> Action:
    """Write the operator's policy: a chip that has ``code`` so many times is isolated.

    One that is ``cut_off`` arrives as half a text.
    """
    return lambda _, operator: operator.configure(code, times, cut_off=cut_off)


def configure_level(code: str, level: str) -> Action:
    """Write the operator's levels of servers' alarms: ``code`` has ``level``, no other has any."""
    return lambda _, operator: operator.configure_level(code, level)


def release(role: int, chip: int) -> Action:
    """Release an isolated chip by editing its node's document."""
    return lambda fleet, operator: operator.release(device_info_name(fleet.node(role).name), chip)


def report(role: int, chip: int, code: str, *, is_over: bool = False) -> Action:
    """Report a public fault of a chip as the operator, or its end."""
    return lambda fleet, operator: operator.report(
        fleet.node(role).name, chip, code, is_over=is_over
    )


def _emulate(role: int, change: Callable[[Emulator], None]) -> Action:
    return _on_node(role, lambda node: change(node.emulator))


def _on_node(role: int, change: Callable[[DemoNode], None]) -> Action:
    async def act(fleet: Fleet, _: Operator) -> None:
        change(fleet.node(role))

    return act
