"""Reads the inventory: the chips and their identity (``dcmi#1.4``, 1.6, 10.2).

A chip whose identity cannot be read is left out and named; the others are served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from contract.codes.families import chip_family
from contract.errors import DriverCallError, DriverCallStuck, DriverError
from contract.plural import plural
from contract.record import Record
from dcmi_shim.library.device_info import SUPER_POD, VIRTUAL_DEVICES
from dcmi_shim.library.return_codes import SYMBOL_MISSING, UNSUPPORTED
from dcmi_shim.values import Chip, ChipNames, Inventory, NodeFacts, SuperPod

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_BOARD = "dcmi_get_device_board_info"
_DIE = "dcmi_get_device_die_v2"
_LABEL = "dcmi_get_card_elabel_v2"
_PCIE = "dcmi_get_device_pcie_info_v2"
_HBM = "dcmi_get_device_hbm_info"
_A5 = "Ascend910A5"
_MAIN_BOARD = "dcmi_get_mainboard_id"
_NAMES = ("dcmi_get_device_chip_info_v2", "dcmi_get_device_chip_info")


class Query(Protocol):
    """Calls a function of the driver; raises the driver errors of ``contract.errors``."""

    async def __call__(
        self, function: str, arguments: tuple[int, ...], where: str | None
    ) -> msgspec.Raw: ...


class CallEach(Protocol):
    """Calls a function for each of some chips by one message; ``more`` are further arguments.

    Returns the value or error of each chip. Chips without either must be asked one by one. Raises
    ``DriverGone``.
    """

    async def __call__(
        self, function: str, chips: Sequence[Chip], *more: int
    ) -> Mapping[Chip, msgspec.Raw | DriverError]: ...


class _Queries:
    """Queries the driver; ``problems`` are why answers are missing."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self.problems: list[str] = []

    def _note(self, error: DriverError, *, needed: bool = False) -> None:
        is_unsupported = isinstance(error, DriverCallError) and error.return_code in (
            UNSUPPORTED,
            SYMBOL_MISSING,
        )
        if needed or not is_unsupported:
            self.problems.append(str(error))

    async def read(
        self,
        function: str,
        arguments: tuple[int, ...] = (),
        where: str | None = None,
        *,
        needed: bool = False,
    ) -> Any:
        """Return the answer, or ``None`` with a problem added.

        Unsupported is not a problem unless ``needed``.
        """
        try:
            return msgspec.json.decode(await self.query(function, arguments, where))
        except (DriverCallError, DriverCallStuck) as error:
            self._note(error, needed=needed)
        return None

    async def of_chip(self, function: str, chip: Chip, *more: int) -> Any:
        """Return the answer about ``chip``."""
        return await self.read(function, (chip.card_id, chip.device_id, *more), str(chip))

    async def of_chips(
        self, each: CallEach, function: str, chips: Sequence[Chip], *more: int
    ) -> dict[Chip, Any]:
        """Return the answer about each of ``chips``, or ``None``, by one message if possible."""
        answers = await each(function, chips, *more)
        result: dict[Chip, Any] = {}
        for chip in chips:
            answer = answers.get(chip)
            if answer is None:
                result[chip] = await self.of_chip(function, chip, *more)
            elif isinstance(answer, DriverError):
                self._note(answer)
                result[chip] = None
            else:
                result[chip] = msgspec.json.decode(answer)
        return result

    async def first(self, functions: Sequence[str], chips: Sequence[Chip], *more: int) -> Any:
        """Return the first answer that some chip gives to one of ``functions``, in order."""
        for chip in chips:
            for function in functions:
                value = await self.of_chip(function, chip, *more)
                if value is not None:
                    return value
        return None


class Survey(Record, frozen=True):
    """The result of a survey. ``inventory`` is ``None`` when too little answered.

    ``listed`` are the chips of which the driver lists the ids; where it ``is_refused`` they are of
    several families, and count as not listed.
    """

    inventory: Inventory | None
    problems: tuple[str, ...]
    listed: tuple[Chip, ...] = ()
    is_refused: bool = False


async def survey(query: Query, each: CallEach, library: str, current: Inventory | None) -> Survey:
    """Read everything once; return what was read.

    Chips of ``current`` stay, even if the driver does not list them now, unless another one is
    in their place. So do virtual devices of a chip that gives no answer about them.

    Raises ``DriverGone`` when there is no driver, ``DriverCallError`` or ``DriverCallStuck`` when
    there is no list of cards, and ``DriverError`` for chips of no supported family.
    """
    queries = _Queries(query)
    problems = queries.problems
    before = () if current is None else current.chips
    result = await _chips(queries, each, before)
    hidden = (chip for chip in before if not any(_are_in_one_place(chip, item) for item in result))
    chips = tuple(sorted([*result, *hidden]))
    if not chips:
        return Survey(None, (*problems, "the driver lists no chip"))
    words = await queries.first(_NAMES, chips)
    name = None if words is None else words[1]
    board = await queries.first((_BOARD,), chips)
    if name is None:
        return Survey(None, (*problems, "no chip returns its name"), chips)
    family = chip_family(name, board)
    # An A3 is known by its board only (dcmi#1.6), so a missing answer decides nothing.
    if family is None and board is None:
        problems.append(f"chip name {name!r} needs a board id, none was read")
        return Survey(None, tuple(problems), chips)
    if family is None:
        raise DriverError(
            f"chip name {name!r} with board id {board:#x} belongs to no supported chip family"
        )
    families = await _families(query, each, chips, is_board_known=board is not None)
    if len(families) > 1:
        return Survey(None, (*problems, _mixed_families(families)), chips, is_refused=True)
    version = await queries.read("dcmi_get_dcmi_version")
    pod = await _super_pod(queries, chips[0])
    divided_before = () if current is None else current.virtual
    virtual = await virtual_chips(query, each, chips, divided_before)
    main_board = None
    if family == _A5:
        main_board = await queries.first((_MAIN_BOARD,), chips)
    inventory = Inventory(chips, family, name, board, version, pod, library, virtual, main_board)
    return Survey(inventory, tuple(problems), chips)


async def _families(
    query: Query, each: CallEach, chips: Sequence[Chip], *, is_board_known: bool
) -> dict[str, dict[str, list[Chip]]]:
    """Return the chips by family and name. One without enough answers now is in none."""
    # Queries of their own: a chip without an answer now is not a problem of the inventory.
    queries = _Queries(query)
    result: dict[str, dict[str, list[Chip]]] = {}
    names: dict[Chip, Any] = {}
    for function in _NAMES:
        unnamed = [chip for chip in chips if names.get(chip) is None]
        if unnamed:
            names |= await queries.of_chips(each, function, unnamed)
    named = [chip for chip in chips if names[chip] is not None]
    boards = await queries.of_chips(each, _BOARD, named)
    for chip in named:
        words, board = names[chip], boards[chip]
        if board is None and is_board_known:
            continue
        family = chip_family(words[1], board) or "no supported family"
        result.setdefault(family, {}).setdefault(words[1], []).append(chip)
    return result


def _mixed_families(families: Mapping[str, Mapping[str, Sequence[Chip]]]) -> str:
    """Return why a server with chips of several families is refused."""
    kinds = [
        f"{family} ({name}: chips {', '.join(str(chip.physical_id) for chip in chips)})"
        for family, names in families.items()
        for name, chips in names.items()
    ]
    return (
        f"the chips are of different families: {' and '.join(kinds)}; one document can show one "
        "family only, so device-info stays as it is"
    )


async def chip_names(query: Query, chip: Chip) -> tuple[ChipNames, tuple[str, ...]]:
    """Return the names of ``chip``, and why not everything is known.

    Raises ``DriverGone`` when there is no driver.
    """
    queries = _Queries(query)
    words = await queries.first(_NAMES, (chip,))
    die = await queries.of_chip(_DIE, chip)
    pcie = await queries.of_chip(_PCIE, chip)
    names = ChipNames(
        model="" if words is None else f"{words[1]}-{words[0]}-{words[2]}",
        vdie="" if die is None else _die_of(die),
        pcie_address="" if pcie is None else "{:04X}:{:02X}:{:02X}.{:X}".format(*pcie),
    )
    return names, tuple(queries.problems)


def _are_in_one_place(chip: Chip, other: Chip) -> bool:
    """Return whether both cannot exist at once: ids and places belong to one chip each."""
    return (
        chip.physical_id == other.physical_id
        or chip.logic_id == other.logic_id
        or (chip.card_id, chip.device_id) == (other.card_id, other.device_id)
    )


async def _chips(queries: _Queries, each: CallEach, before: Sequence[Chip]) -> list[Chip]:
    problems = queries.problems
    answer = await queries.query("dcmi_get_card_list", (), None)
    count, cards = msgspec.json.decode(answer, type=tuple[int, list[int]])
    # Upstream waits until both agree (dcmi#1.3); here the problem leads to another survey.
    if count != len(cards):
        problems.append(f"the driver has {plural(count, 'card')} and lists {len(cards)}")
    chips: dict[int, Chip] = {}
    logic_ids: set[int] = set()
    for card in cards:
        where = f"card {card}"
        # Questions of their own: an identity that is missing is not a problem of the inventory.
        serial = await _Queries(queries.query).read(_LABEL, (card,), where)
        devices = await queries.read("dcmi_get_device_num_in_card", (card,), where, needed=True)
        for device in range(devices or 0):
            chip = await _identity(queries, card, device, serial or "")
            if chip is None:
                continue
            # Ids belong to one chip each; the first that the driver lists stays.
            if chip.physical_id in chips or chip.logic_id in logic_ids:
                problems.append(f"{chip}, logic id {chip.logic_id}: another chip has such an id")
                continue
            chips[chip.physical_id] = chip
            logic_ids.add(chip.logic_id)
    dies = await _Queries(queries.query).of_chips(each, _DIE, list(chips.values()))
    return [_with_die(chip, words, before) for chip, words in dies.items()]


async def _identity(queries: _Queries, card: int, device: int, serial: str) -> Chip | None:
    """Return the chip without its die; ``None`` if the driver does not list its ids."""
    where = f"card {card} device {device}"
    logic = await queries.read("dcmi_get_device_logic_id", (card, device), where, needed=True)
    if logic is None:
        return None
    physical = await queries.read(
        "dcmi_get_device_phyid_from_logicid", (logic,), where, needed=True
    )
    if physical is None:
        return None
    return Chip(physical, logic, card, device, "", serial)


def _with_die(chip: Chip, words: Sequence[int] | None, current: Sequence[Chip]) -> Chip:
    # Words that are all equal, such as zeros, identify no die.
    die = "" if words is None or len(set(words)) == 1 else _die_of(words)
    place, serial = _place_of(chip), chip.serial
    before = next((item for item in current if _place_of(item) == place), None)
    if before is not None:
        # An answer that is missing now was given before to the same process.
        die, serial = die or before.die, serial or before.serial
    return Chip(*place, die, serial)


def _place_of(chip: Chip) -> tuple[int, int, int, int]:
    return chip.physical_id, chip.logic_id, chip.card_id, chip.device_id


def _die_of(words: Sequence[int]) -> str:
    return "-".join(f"{word:08X}" for word in words)


async def _super_pod(queries: _Queries, chip: Chip) -> SuperPod | None:
    members = await queries.of_chip("dcmi_get_device_info", chip, *SUPER_POD)
    return None if members is None else SuperPod(*members)


async def node_facts(query: Query, inventory: Inventory) -> tuple[NodeFacts, tuple[str, ...]]:
    """Return what labels and annotations need beside the inventory, and why not all of it is known.

    Raises ``DriverGone`` when there is no driver.
    """
    queries = _Queries(query)
    chips, family = inventory.chips, inventory.family
    resources = await queries.first(("dcmi_get_device_info",), chips, *VIRTUAL_DEVICES)
    words = await queries.first(_NAMES, chips)
    cores = round(resources[1]) if resources is not None else words[3] if words is not None else 0
    has_memory = family.startswith("Ascend910")
    products = []
    if family == "Ascend310P":
        for chip in chips:
            product = await queries.of_chip("dcmi_get_product_type", chip)
            products.append(product or "")
    pods = {}
    if inventory.super_pod is not None:
        pods = {chip.physical_id: await _super_pod(queries, chip) for chip in chips}
    facts = NodeFacts(
        aicores=cores or None,
        memory_mb=await queries.first((_HBM,), chips) if has_memory else None,
        main_board=await queries.first((_MAIN_BOARD,), chips),
        products=tuple(products),
        super_devices={chip: pod.sdid for chip, pod in pods.items() if pod is not None},
    )
    return facts, tuple(queries.problems)


async def virtual_chips(
    query: Query, each: CallEach, chips: Sequence[Chip], before: Sequence[int]
) -> tuple[int, ...]:
    """Return the physical ids of the chips that are divided into virtual devices.

    For a chip without an answer ``before`` decides: most drivers do not have the function. Raises
    ``DriverGone`` when there is no driver.
    """
    totals = await _Queries(query).of_chips(each, "dcmi_get_device_info", chips, *VIRTUAL_DEVICES)
    return tuple(
        chip.physical_id
        for chip, total in totals.items()
        if (chip.physical_id in before if total is None else total[0])
    )
