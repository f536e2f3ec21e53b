"""Isolates or releases a chip: what is found, refused, asked, written and shown.

The documents of the node are read first, and what is unknown or refused ends the verb with nothing
changed. With consent, each document is edited at the version that was read. Then cluster-info is
read until it shows the change, the agent falls silent, or the time is over.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from aggregator.processors import separation_documents
from contract.codes.levels import ChipLevel, most_serious
from contract.documents.cluster_info import (
    cluster_device_index,
    entry_texts,
    read_device_entry,
)
from contract.documents.device_info import DeviceFault
from contract.documents.isolation_request import read_requests
from contract.documents.separation import chip_of
from contract.errors import (
    DocumentError,
    StoreConflict,
    StoreError,
    StoreForbidden,
    StoreRefused,
    quoted,
)
from contract.go.decode import decode as decode_go
from contract.names import CLUSTER_LABEL, CLUSTER_NAMESPACE, device_info_name
from contract.sentences import Sentence, joined, message, sentence
from stores.base import Selection
from vigil.aggregator_stores import Silence, open_stores
from vigil.exit_status import ExitStatus
from vigil.isolation.change import MANUAL, Consent, edited_report, is_named, without_separation
from vigil.isolation.found_chip import FoundChip, beats_of, find, refusal
from vigil.language import listed, translated
from vigil.language import shown as shown_text
from vigil.reports.show import answering, print_json, print_lines

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aggregator.config import AggregatorConfiguration
    from stores.base import Document, Store
    from vigil.aggregator_stores import Stores
    from vigil.isolation.change import Isolation
    from vigil.isolation.found_chip import FoundChip

UNCHANGED = message("nothing was changed")
# Agents write device-info often, so a conflict is normal; five in a row are not.
_ATTEMPTS = 5
_ISOLATED = message("{chip} of {node} is isolated")
_RELEASED = message("{chip} of {node} is released")
_RIGHTS = (
    "your account needs get and update of ConfigMaps in kube-system and cluster-system, and list "
    "in mindx-dl. With the overlay beside-device-plugin it needs the right write to device-info of "
    "the API group npu-vigil"
)
# An agent and an aggregator each write within seconds; half a minute shows that one does not.
_WAIT_SECONDS = 30.0
_POLL_SECONDS = 0.25
_REQUESTS = 2
"""A broker compares no versions: the agent's own write may overwrite the first request."""


class Outcome(msgspec.Struct, frozen=True):
    """What became of a change.

    ``changed``: something was written. ``isolated``: cluster-info shows the chip as isolated,
    ``None`` where it has no entry of the node. ``level`` is the most serious level of other faults
    of the chip, by the codes ``because``.
    """

    node: str
    chip: str
    action: str
    done: bool
    changed: bool
    isolated: bool | None
    text: str
    holders: tuple[str, ...] = ()
    level: str = ""
    because: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


async def run(
    configuration: AggregatorConfiguration, change: Isolation, consent: Consent, *, as_json: bool
) -> ExitStatus:
    """Make ``change`` in the stores of an aggregator and return the exit status.

    Raises ``StoreError``.
    """
    try:
        async with open_stores(configuration, by_operator=True) as stores:
            return await _IsolationRun(stores, change, as_json=as_json).execute(consent)
    except StoreForbidden as error:
        raise StoreRefused(f"{error}; {_RIGHTS}") from None


class _IsolationRun:
    def __init__(self, stores: Stores, change: Isolation, *, as_json: bool) -> None:
        self._stores = stores
        self._change = change
        self._as_json = as_json
        self._published = Published(stores, change.node)
        self._holders: tuple[str, ...] = ()
        self._changed = False

    async def execute(self, consent: Consent) -> ExitStatus:
        change = self._change
        # The documents first: without the node nothing else can be asked about.
        found_chip = await find(self._stores, change.node, change.chip)
        if (reason := self._unknown(found_chip)) is not None:
            return self._end(found_chip, ExitStatus.WRONG_USE, reason)
        self._holders = tuple(found_chip.holders())
        # Rights that are missing for the wait are to be known before anything is changed.
        shown = await self._published.shown(found_chip.chip)
        if change.isolates:
            named = [
                document
                for _, document in found_chip.reports
                if is_named(document, found_chip.chip)
            ]
            if named:
                return self._end(found_chip, ExitStatus.OK, _by_whom(named[0], found_chip), shown)
            if (reason := await refusal(found_chip, change.node)) is not None:
                return self._end(found_chip, ExitStatus.NOT_WELL, _refused(reason), shown)
        elif not self._holders:
            if any(item.is_isolated for item in shown) and not found_chip.problems:
                # Another request released it a moment ago.
                return await self._wait(found_chip)
            names = {"chip": found_chip.chip, "node": change.node}
            text = sentence("{chip} of {node} is not isolated: nothing is to be released", **names)
            status = ExitStatus.OK
            if found_chip.problems:
                text = sentence("no document that can be read isolates {chip} of {node}", **names)
                status = ExitStatus.NOT_WELL
            return self._end(found_chip, status, text, shown)
        plan = self._plan(found_chip)
        if consent is Consent.DRY_RUN:
            text = sentence("would {plan}; nothing was changed", plan=plan)
            return self._end(found_chip, ExitStatus.OK, text, shown)
        if consent is Consent.ASK:
            # A script gets no question that nothing would answer.
            if not sys.stdin.isatty():
                text = sentence(
                    "would {plan}; nothing was changed: without a terminal, add --yes", plan=plan
                )
                return self._end(found_chip, ExitStatus.WRONG_USE, text, shown)
            if not await consents(plan):
                return self._end(found_chip, ExitStatus.NOT_WELL, sentence(UNCHANGED), shown)
        return await self._carry_out(found_chip)

    async def _carry_out(self, chip: FoundChip) -> ExitStatus:
        try:
            await self._write(chip)
            self._changed = True
            return await self._wait(chip)
        except asyncio.CancelledError:
            # After Ctrl-C the user has to know whether the document was changed.
            template = message(
                "not waited for; the change may be written: see vigil explain {part}"
            )
            if self._changed:
                template = message(
                    "not waited for; the change is written: see vigil explain {part}"
                )
            text = translated(template, part=quoted(f"{self._change.node}/{chip.chip}"))
            print(f"\nvigil: {text}", file=sys.stderr)
            raise

    def _unknown(self, found_chip: FoundChip) -> str | None:
        node, chip = self._change.node, found_chip.chip
        if not found_chip.reports and not found_chip.separating:
            where = joined("{before}, {part}", (store.url for store in self._stores.read))
            return sentence(
                "there is no node {node}: {stores} has no device-info of it",
                node=repr(quoted(node)),
                stores=where,
            )
        if chip_of(chip) is None:
            return sentence(
                "{chip} is not a valid name of a chip of {node}; it has {chips}",
                chip=repr(quoted(chip)),
                node=node,
                chips=_listed(found_chip),
            )
        if chip in found_chip.chips or found_chip.separating:
            return None
        types = {name.rpartition("-")[0] for name in found_chip.chips}
        if found_chip.chips_are_complete or (types and chip.rpartition("-")[0] not in types):
            return sentence(
                "{node} has no chip {chip}; it has {chips}",
                node=node,
                chip=chip,
                chips=_listed(found_chip),
            )
        return None

    def _plan(self, found_chip: FoundChip) -> str:
        change, chip = self._change, found_chip.chip
        if change.isolates:
            (_, document), *_ = found_chip.reports
            place = f"{document.namespace}/{document.name}"
            return sentence(
                "isolate {chip} of {node} in {place}, by {by}, because: {reason}; pods that use it "
                "are rescheduled",
                chip=chip,
                node=change.node,
                place=place,
                by=change.by,
                reason=change.reason,
            )
        return sentence(
            "release {chip} of {node} in {places}",
            chip=chip,
            node=change.node,
            places=joined("{before} and {part}", self._holders),
        )

    async def _write(self, chip: FoundChip) -> None:
        """Edit each document. Raises ``StoreError`` that names what is done already."""
        change = replace(self._change, chip=chip.chip)
        done: list[str] = []
        try:
            for store, document in chip.reports:
                if change.isolates or is_named(document, change.chip):
                    place = (document.namespace, document.name)
                    await _edit(store, *place, lambda there: edited_report(there, change))
                    done.append(f"{'/'.join(place)} of {store.url}")
            for store in () if change.isolates else chip.separating:
                await _edit(
                    store,
                    *(separation_documents.NAMESPACE, separation_documents.CHIPS_NAME),
                    lambda there: without_separation(there, change.node, change.chip),
                )
        except StoreError as error:
            # Writes to several stores are not a transaction: what is written already must be named.
            if done:
                raise type(error)(f"written: {', '.join(done)}; not written: {error}") from None
            raise

    async def _wait(self, chip: FoundChip) -> ExitStatus:
        change = self._change
        shown, why_not = await wait_until_shown(
            self._stores,
            change,
            chip,
            self._published,
            lambda: self._write(chip),
            is_written=self._changed,
        )
        if why_not is not None:
            return self._end(chip, ExitStatus.NOT_WELL, why_not, shown)
        template = _ISOLATED if change.isolates else _RELEASED
        text = sentence(template, chip=chip.chip, node=change.node)
        return self._end(chip, ExitStatus.OK, text, shown)

    def _end(
        self,
        chip: FoundChip,
        status: ExitStatus,
        text: str,
        shown: list[ShownChip] | None = None,
    ) -> ExitStatus:
        others = {
            code: _level(level) for item in shown or () for code, level in item.others.items()
        }
        worst = most_serious(others.values()) if others else ""
        because = tuple(sorted(code for code, item in others.items() if item == worst))
        outcome = Outcome(
            node=self._change.node,
            chip=chip.chip,
            action="isolate" if self._change.isolates else "release",
            done=status is ExitStatus.OK,
            changed=self._changed,
            isolated=any(item.is_isolated for item in shown) if shown else None,
            text=text,
            holders=self._holders,
            level=str(worst),
            because=because,
            problems=tuple(chip.problems),
        )
        if self._as_json:
            with answering():
                print_json(outcome)
        else:
            lines = [shown_text(outcome.text)]
            if worst and not self._change.isolates:
                lines.append(
                    translated(
                        "{chip} stays at {level} because of other faults: {codes}",
                        chip=chip.chip,
                        level=worst,
                        codes=listed(because),
                    )
                )
            lines += chip.problems
            if status is ExitStatus.OK:
                with answering():
                    print_lines(lines)
            else:
                print("\n".join(f"vigil: {quoted(line)}" for line in lines), file=sys.stderr)
        return status


async def consents(plan: str) -> bool:
    """Return whether the person at the terminal agrees to ``plan``; Ctrl-C is raised."""
    question = sentence("This will {plan}. Go on? [y/N] ", plan=plan)
    print(shown_text(question), end="", file=sys.stderr, flush=True)
    loop, is_answered = asyncio.get_running_loop(), asyncio.Event()
    # A thread that reads would delay the end until Enter is pressed.
    loop.add_reader(sys.stdin, is_answered.set)
    try:
        await is_answered.wait()
    except asyncio.CancelledError:
        print(f"\nvigil: {translated(UNCHANGED)}", file=sys.stderr)
        raise
    finally:
        loop.remove_reader(sys.stdin)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


async def _edit(
    store: Store, namespace: str, name: str, edit: Callable[[Document], Document | None]
) -> None:
    """Write what ``edit`` makes of a document, of its newest version. Raises ``StoreError``."""
    for _ in range(_ATTEMPTS):
        there = await store.get(namespace, name)
        edited = None if there is None else edit(there)
        if there is None or edited is None:
            return
        try:
            # With the version that was read, so that an edit by another program is not lost.
            await store.put(edited, expected=there.version)
        # Read and edited again: the edit is of the newest version.
        except StoreConflict:
            continue
        return
    raise StoreConflict(f"{namespace}/{name} changes all the time: try again")


def _level(level: str) -> ChipLevel:
    try:
        return ChipLevel(level)
    except ValueError:
        return ChipLevel.NORMAL_NPU


def _listed(chip: FoundChip) -> str:
    names = sorted(chip.chips, key=lambda name: chip_of(name) or 0)
    return joined("{before}, {part}", names or [sentence("no known chip")])


def _refused(reason: str) -> str:
    # A document that cannot be read has an error, so the sentence is English.
    if not isinstance(reason, Sentence):
        return f"refused: {reason}"
    return sentence("refused: {reason}", reason=reason)


def _by_whom(document: Document, chip: FoundChip) -> str:
    number = chip_of(chip.chip)
    assert number is not None
    request = read_requests(document.annotations).get(number)
    by = sentence("by a rule or by a name in its document")
    if request is not None:
        by = sentence("by {by} (as stated): {reason}", by=request.by, reason=request.reason)
    return sentence("{chip} is isolated already, {by}; nothing was changed", chip=chip.chip, by=by)


async def wait_until_shown(
    stores: Stores,
    change: Isolation,
    found_chip: FoundChip,
    published: Published,
    write: Callable[[], Awaitable[None]],
    *,
    is_written: bool,
) -> tuple[list[ShownChip], str | None]:
    """Return what cluster-info shows of the chip, and why that is not ``change``, else ``None``.

    ``write`` makes the change again where the agent took it out.
    Ends early where the agent of the node falls silent. Raises ``StoreError``.
    """
    node, chip = change.node, found_chip.chip
    give_up = time.monotonic() + _WAIT_SECONDS
    requests = 1
    silence = Silence(found_chip.beats)
    while True:
        shown = await published.shown(chip)
        if shown and all(item.is_isolated is change.isolates for item in shown):
            return shown, None
        if change.isolates and not await _is_requested(found_chip):
            # Twice taken out: the agent does so on purpose.
            if requests == _REQUESTS:
                reason = sentence(
                    "the agent of {node} took the request out again: it knows no chip {chip}, or "
                    "it is of an earlier release",
                    node=node,
                    chip=chip,
                )
                return shown, reason
            requests += 1
            await write()
        silent_seconds = silence.seconds(await beats_of(stores, node))
        # A silent agent cannot take the request, so waiting longer is of no use.
        if silent_seconds or time.monotonic() >= give_up:
            done = sentence("written") if is_written else sentence("no document isolates it")
            reason = _why_not(f"{node}/{chip}", node, silent_seconds, is_shown=bool(shown))
            text = sentence(
                "{done}, but cluster-info does not show that{reason}", done=done, reason=reason
            )
            return shown, text
        await asyncio.sleep(_POLL_SECONDS)


async def _is_requested(chip: FoundChip) -> bool:
    for store, document in chip.reports:
        there = await store.get(document.namespace, document.name)
        if there is not None and not is_named(there, chip.chip):
            return False
    return True


def _why_not(place: str, node: str, silent_seconds: float, *, is_shown: bool) -> str:
    if silent_seconds:
        return sentence(
            ": no heartbeat of {node} came for {seconds} s; its agent takes the change when it "
            "runs again",
            node=node,
            seconds=round(silent_seconds),
        )
    seconds = round(_WAIT_SECONDS)
    if not is_shown:
        return sentence(
            " after {seconds} s: it has no entry of {node}; an aggregator must run",
            seconds=seconds,
            node=node,
        )
    return sentence(" after {seconds} s: see vigil explain {part}", seconds=seconds, part=place)


@dataclass(frozen=True)
class ShownChip:
    """What cluster-info shows of a chip: whether it is isolated, and the levels of other codes."""

    is_isolated: bool
    others: dict[str, str]


class Published:
    """What cluster-info shows of a chip, in all stores."""

    def __init__(self, stores: Stores, node: str) -> None:
        self._stores = stores.all
        self._key = device_info_name(node)
        self._names: dict[int, str] = {}
        """The document that has the node, by the number of the store."""

    async def shown(self, chip: str) -> list[ShownChip]:
        """Return what is shown of the chip in each store with an entry of its node.

        Raises ``StoreError``. What cannot be read has no entry.
        """
        result = []
        for number, store in enumerate(self._stores):
            entry = await self._entry(number, store)
            if entry is not None:
                result.append(_shown_chip([item for item in entry if item.npu_name == chip]))
        return result

    async def _entry(self, number: int, store: Store) -> list[DeviceFault] | None:
        if number in self._names:
            # Asked four times a second: one document by name, and all only where the node has
            # moved.
            document = await store.get(CLUSTER_NAMESPACE, self._names[number])
            shown = None if document is None else self._shown(document)
            if shown is not None:
                return shown
        for document in await store.list(Selection(CLUSTER_NAMESPACE, label=CLUSTER_LABEL)):
            if cluster_device_index(document.name) is not None:
                shown = self._shown(document)
                if shown is not None:
                    self._names[number] = document.name
                    return shown
        return None

    def _shown(self, document: Document) -> list[DeviceFault] | None:
        try:
            text = entry_texts(document.data.get(document.name, ""), document.name).get(self._key)
            if text is None:
                return None
            _, entry = read_device_entry(self._key, text, document.name)
            devices = entry.DeviceList or {}
            # The key of the free list is a prefix of the others, so it sorts first.
            faults = devices[f"{min(devices)}-Fault"]
            return decode_go(faults, list[DeviceFault], document.name, self._key)
        except DocumentError:
            return None


def _shown_chip(faults: list[DeviceFault]) -> ShownChip:
    """Return what objects of the fault list contain; the level of one may be the isolation."""
    levels = {
        code: item.fault_level
        for fault in faults
        for code, item in (fault.fault_time_and_level_map or {}).items()
    }
    isolates = any(fault.fault_level == MANUAL for fault in faults)
    return ShownChip(
        isolates or MANUAL in levels.values(),
        {code: level for code, level in levels.items() if level != MANUAL},
    )
