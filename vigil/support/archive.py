"""The archive: what is cut to fit, and its manifest."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_BYTES = 20_000_000
"""Of the whole archive, compressed."""
_MEMBER_BYTES = 1600
"""What a member takes at most beside its content: headers of tar and lines of the manifest."""
_MIN_LINES_BYTES = 64 * 1024
"""Lines shorter than this are not cut again, they are left out."""


class PartFile(msgspec.Struct):
    """One file of a part.

    ``part`` is the part that it belongs to. ``is_lines``: its oldest lines can be left out;
    anything else is kept whole or left out.
    ``priority``: what has the highest number is cut first.
    """

    name: str
    content: bytes
    priority: int
    is_lines: bool = False
    part: str = ""


class PartEntry(msgspec.Struct):
    """What the manifest shows of one part.

    ``state`` is ``complete``, ``partial``, ``missing`` or ``not-applicable``; ``problem`` names why
    it is not complete. ``files`` has the bytes of each file. ``at_ms`` is when it was begun (epoch
    milliseconds), ``seconds`` how long it took.
    """

    part: str
    content: str
    state: str
    problem: str
    at_ms: int
    seconds: float
    files: dict[str, int] = {}


class SupportManifest(msgspec.Struct):
    """The contents of an archive; see ``docs/support.md``."""

    version: str
    at_ms: int
    redacted: bool
    parts: list[PartEntry]
    cut: list[str]


def fit(files: list[PartFile], limit: int) -> list[str]:
    """Cut ``files`` until they take less than ``limit`` bytes compressed; return what was cut.

    The least useful priority first, in it the largest file. Each file is compressed by itself for
    this: together they take less.
    """
    sizes = {file.name: _compressed(file.content) for file in files}
    cuts: dict[str, str] = {}
    while sum(sizes.values()) > limit and files:
        file = max(files, key=lambda file: (file.priority, sizes[file.name]))
        before = len(file.content)
        if file.is_lines and before > _MIN_LINES_BYTES:
            half = file.content[before // 2 :]
            # Whole lines only, and the newest: what happened last explains the failure.
            file.content = half[half.find(b"\n") + 1 :]
            sizes[file.name] = _compressed(file.content)
            cuts[file.name] = f"{file.name}: only the newest {len(file.content)} bytes"
        else:
            files.remove(file)
            del sizes[file.name]
            cuts[file.name] = f"{file.name}: left out, {before} bytes"
    return list(cuts.values())


def _compressed(content: bytes) -> int:
    return len(zlib.compress(content, 6)) + _MEMBER_BYTES


def packed(folder: str, files: Sequence[tuple[str, bytes]], at_s: int) -> bytes:
    """Return the archive with ``files`` in ``folder``; they have the time ``at_s`` and no owner."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=6, mtime=at_s) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, content in files:
            member = tarfile.TarInfo(f"{folder}/{name}")
            # Unpacked files are for their owner alone, as the archive is.
            member.size, member.mtime, member.mode = len(content), at_s, 0o600
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def manifest_text(manifest: SupportManifest, at: str) -> str:
    """Return the manifest for people; ``at`` is the time of the archive."""
    lines = [
        f"Support archive of NPU Vigil {manifest.version}, {at}",
        "",
        "Secrets are removed. Look at each file before you give the archive away.",
        "Names are replaced by pseudonyms." if manifest.redacted else "Names are not replaced.",
        "",
    ]
    for part in manifest.parts:
        size = sum(part.files.values())
        lines.append(f"{part.part}: {part.state}, {size} bytes, {part.seconds:.1f} s")
        lines.append(f"  {part.content}")
        if part.problem:
            lines.append(f"  {part.state}: {part.problem}")
        lines += [f"  {name}  {count} bytes" for name, count in part.files.items()]
    lines += ["", "Cut to fit:", *(f"  {text}" for text in manifest.cut or ["nothing"]), ""]
    return "\n".join(lines)
