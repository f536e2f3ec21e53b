"""Makes the archive: all parts at the same time, then without secrets, then cut, then written.

Each part runs in a thread that is given up after its time; what it has by then is kept. Each file
is cut to a limit of its own before the slow filters. If the packed archive is too large, files are
cut again with less room, the least important first.
"""

from __future__ import annotations

import asyncio
import secrets as random
import socket
import time
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

import msgspec

from contract.errors import VigilError
from pacing.abandonable_thread import AbandonableThread
from service.files.atomic import replace_durably
from vigil.support import daemon_parts, host_parts
from vigil.support.archive import (
    MAX_BYTES,
    PartEntry,
    PartFile,
    SupportManifest,
    fit,
    manifest_text,
    packed,
)
from vigil.support.part import (
    MAX_PART_BYTES,
    NotApplicable,
    PartContents,
    PartFileKind,
    SupportPart,
)
from vigil.support.pseudonyms import Pseudonyms
from vigil.support.secrets import SecretRemover

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from vigil.support.part import RawFile
    from vigil.support.place import SupportPlace

PART_SECONDS = 30.0
_KEPT_BYTES = 100_000
"""Of ``MAX_BYTES``, for the manifest."""


def parts_of(place: SupportPlace, now_ms: int) -> tuple[SupportPart, ...]:
    """Return the fixed list; the lowest priority is cut last."""
    host, daemons = host_parts, daemon_parts
    return (
        SupportPart(
            "versions",
            "packages, system, kernel and driver",
            0,
            partial(host.collect_versions, place),
        ),
        SupportPart(
            "configuration", "settings in force", 0, partial(host.collect_configuration, place)
        ),
        SupportPart(
            "rights",
            "modes of files, rules of the API server",
            1,
            partial(host.collect_rights, place),
        ),
        SupportPart("faults", "faults that hold", 1, partial(daemons.collect_faults, place)),
        SupportPart("status", "what daemons answer", 2, partial(daemons.collect_status, place)),
        SupportPart(
            "call-times", "how long calls take", 2, partial(daemons.collect_call_times, place)
        ),
        SupportPart("bmc", "alarms of the BMC", 2, partial(host.collect_bmc, place)),
        SupportPart("hccn_tool", "network of the chips", 2, partial(host.collect_hccn, place)),
        SupportPart("kernel", "kernel lines of the driver", 3, partial(host.collect_kernel, place)),
        SupportPart("metrics", "metrics of daemons", 3, partial(daemons.collect_metrics, place)),
        SupportPart(
            "timeline",
            "changes of faults in the last day",
            4,
            partial(daemons.collect_timeline, place, now_ms),
        ),
        SupportPart("log", "log of the last day", 5, partial(host.collect_log, place)),
        SupportPart(
            "journal", "journal of the last day", 6, partial(daemons.collect_journal, place, now_ms)
        ),
        SupportPart(
            "documents", "documents of the store", 7, partial(daemons.collect_documents, place)
        ),
    )


def write_archive(
    place: SupportPlace,
    output: Path,
    *,
    redact: bool,
    seconds: float = PART_SECONDS,
    limit: int = MAX_BYTES,
) -> SupportManifest:
    """Write the archive to ``output`` and return its manifest.

    A part that takes longer than ``seconds`` is given up; what it has by then is kept. All parts
    run at the same time, so ``seconds`` bounds them together. Raises ``OSError``.
    """
    now_ms = time.time_ns() // 1_000_000
    parts = parts_of(place, now_ms)
    gathered = asyncio.run(_collect(parts, seconds))
    cut = [_limit(collected) for collected, _ in gathered]
    remover = SecretRemover(place.secrets())
    pseudonyms = _pseudonyms(place, gathered, remover) if redact else None

    def clean(value: object) -> object:
        # Secrets first: a pseudonym inside of a secret would hide it from the other step.
        value = remover.value(value)
        return value if pseudonyms is None else pseudonyms.value(value)

    files: list[PartFile] = []
    entries: list[PartEntry] = []
    notes = [str(clean(text)) for texts in cut for text in texts]
    for part, collected, entry in zip(parts, *zip(*gathered, strict=True), strict=True):
        entry.problem = str(clean(entry.problem))
        entries.append(entry)
        for raw in collected.files:
            name, content = str(clean(raw.name)), _content(raw, clean)
            is_lines = raw.form is not PartFileKind.JSON
            files.append(PartFile(name, content, part.priority, is_lines, part.name))
    return _written(output, entries, files, notes, now_ms, redact=redact, limit=limit)


async def _collect(
    parts: tuple[SupportPart, ...], seconds: float
) -> list[tuple[PartContents, PartEntry]]:
    return await asyncio.gather(*(_collect_part(part, seconds) for part in parts))


async def _collect_part(part: SupportPart, seconds: float) -> tuple[PartContents, PartEntry]:
    """Return what ``part`` has; nothing that it raises or waits for ends the others."""
    collected = PartContents()
    begun_ms, begun = time.time_ns() // 1_000_000, time.monotonic()
    state = ""
    try:
        await AbandonableThread(lambda: part.collect(collected), part.name).result(seconds)
    except TimeoutError:
        collected.problems.append(f"no answer in {seconds:g} s")
    except NotApplicable as reason:
        state = "not-applicable"
        collected.problems.append(str(reason))
    except (VigilError, OSError) as error:
        collected.problems.append(str(error))
    # A defect of ours in one part must not keep the others from whoever looks for it.
    except Exception as error:
        collected.problems.append(f"{type(error).__name__}: {error}")
    # A thread that is given up may still add to it.
    collected = PartContents(list(collected.files), list(collected.problems))
    if not state:
        state = (
            "complete" if not collected.problems else "partial" if collected.files else "missing"
        )
    problem = "; ".join(collected.problems)
    took = round(time.monotonic() - begun, 3)
    return collected, PartEntry(part.name, part.content, state, problem, begun_ms, took)


def _pseudonyms(
    place: SupportPlace, gathered: list[tuple[PartContents, PartEntry]], remover: SecretRemover
) -> Pseudonyms:
    pseudonyms = Pseudonyms(random.token_bytes(32))
    host = socket.gethostname()
    names = [host, host.partition(".")[0]]
    if place.agent is not None:
        names.append(place.agent.node_name)
    for name in names:
        pseudonyms.add("node", name)
    for collected, _ in gathered:
        for raw in collected.files:
            pseudonyms.learn(remover.value(raw.value))
            # The pod of a log is in the name of its file alone.
            if raw.name.startswith("log/"):
                pseudonyms.add("pod", raw.name.removesuffix(".txt").partition(".")[2])
    return pseudonyms


def _limit(collected: PartContents) -> list[str]:
    """Cut each file of ``collected``, before the slow filters; return what was cut."""
    within_limit: list[RawFile] = []
    cuts: list[str] = []
    for raw in collected.files:
        try:
            limited, cut = _limited(raw)
        except RecursionError:
            limited, cut = None, "left out, nested too deeply"
        if limited is not None:
            within_limit.append(limited)
        if cut:
            cuts.append(f"{raw.name}: {cut}")
    collected.files = within_limit
    return cuts


def _limited(raw: RawFile) -> tuple[RawFile | None, str]:
    """Return at most ``MAX_PART_BYTES`` of ``raw``, and what is cut."""
    if raw.form is PartFileKind.TEXT:
        text = str(raw.value)
        if len(text) <= MAX_PART_BYTES:
            return raw, ""
        text = text[-MAX_PART_BYTES:].partition("\n")[2]
        return replace(raw, value=text), f"only the newest {len(text)} characters"
    if raw.form is PartFileKind.JSON:
        size = len(msgspec.json.encode(raw.value))
        return (raw, "") if size <= MAX_PART_BYTES else (None, f"left out, {size} bytes")
    assert isinstance(raw.value, list)
    # Copied: a part that was given up may still add to it.
    values = list(raw.value)
    remaining_bytes, count = MAX_PART_BYTES, len(values)
    while (
        count
        and (remaining_bytes := remaining_bytes - len(msgspec.json.encode(values[count - 1]))) >= 0
    ):
        count -= 1
    cut = f"only the newest {len(values) - count} of {len(values)} lines" if count else ""
    return replace(raw, value=values[count:]), cut


def _content(raw: RawFile, clean: Callable[[object], object]) -> bytes:
    if raw.form is PartFileKind.TEXT:
        return str(clean(raw.value)).encode(errors="replace")
    if raw.form is PartFileKind.JSON_LINES:
        assert isinstance(raw.value, list)
        return b"".join(msgspec.json.encode(clean(value)) + b"\n" for value in raw.value)
    return msgspec.json.format(msgspec.json.encode(clean(raw.value)), indent=1) + b"\n"


def _written(
    output: Path,
    entries: list[PartEntry],
    files: list[PartFile],
    notes: list[str],
    now_ms: int,
    *,
    redact: bool,
    limit: int,
) -> SupportManifest:
    """Cut, pack and write; again with less where the estimate was too small."""
    at = datetime.fromtimestamp(now_ms / 1000, UTC)
    folder = f"vigil-support-{at:%Y%m%dT%H%M%SZ}"
    available = limit - min(_KEPT_BYTES, limit // 2)
    while True:
        notes += fit(files, available)
        for entry in entries:
            entry.files = {f.name: len(f.content) for f in files if f.part == entry.part}
        manifest = SupportManifest(
            version("npu-vigil"), now_ms, redact, entries, list(dict.fromkeys(notes))
        )
        encoded = msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"
        text = manifest_text(manifest, f"{at:%Y-%m-%d %H:%M:%S} UTC").encode(errors="replace")
        members = [("manifest.json", encoded), ("MANIFEST.txt", text)]
        members += [(file.name, file.content) for file in files]
        content = packed(folder, members, now_ms // 1000)
        if len(content) <= limit or not files:
            break
        available = available * 3 // 4
    replace_durably(output, content, 0o600)
    return manifest
