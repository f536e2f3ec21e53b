"""Decide by its mark whether a directory store is the same directory as before.

An empty directory where a mount is missing looks like a cluster in which everything was deleted,
and a wrong mount like another cluster. The ids of the marks are in the state directory. While
another directory is there than the known one, nothing of its nodes is forgotten and the aggregator
is not ready. It counts as the new one when more than half of the known nodes beat in it, or when an
operator confirms it (``vigil forget --mark``). A heartbeat counts when it changes, whatever the
node's clock: one of a backup does not change.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import msgspec

from contract.errors import StoreError
from contract.sentences import message, sentence
from service.files.atomic import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from stores.base import Beat, FoundMark, Store, StoreMark

_log = logging.getLogger(__name__)

FILE_NAME = "marks.json"
# Device and inode of the path are looked at as often (decision 22).
PERIOD_SECONDS = 4.0

_decoder = msgspec.json.Decoder(dict[str, str])


class MarkKnowledge:
    """The known mark of the directory at ``url``. Pure.

    ``id`` is empty before the first mark was seen, and where the directory that counts has none.
    """

    def __init__(self, url: str, identity: str) -> None:
        self.url = url
        self.id = identity
        self.problem: str | None = None
        """Why the directory that is there does not count; ``None`` if it does."""
        self._first: dict[str, int] = {}
        self._beating: set[str] = set()

    def observe_beats(self, beats: Iterable[Beat]) -> None:
        """Record which nodes beat in the directory while it does not count."""
        # Beats matter only while another directory is there: they decide whether it is the new one.
        if self.problem is None:
            return
        for beat in beats:
            if self._first.setdefault(beat.node, beat.beaten_at_ms) != beat.beaten_at_ms:
                self._beating.add(beat.node)

    def check(self, found_mark: FoundMark, nodes: frozenset[str]) -> str | None:
        """Compare the known mark with the one found; ``nodes`` are those known by this store.

        Return why the directory counts again, or for the first time; else ``None``.
        """
        # An empty id: the first directory that is ever seen counts.
        if self.id in ("", found_mark.id):
            reason = "the known directory is back"
        elif found_mark.replaces == self.id:
            reason = "an operator confirmed it"
        # More than half of the nodes, or no node is known: then nothing could be lost.
        elif len(self._beating & nodes) * 2 > len(nodes) or not nodes:
            reason = f"{len(self._beating & nodes)} of {len(nodes)} known nodes beat there"
        else:
            self.problem = self._problem(found_mark, len(nodes))
            return None
        # A first mark is not news; one that replaces another is.
        has_ended = self.problem is not None or self.id not in ("", found_mark.id)
        self.id, self.problem = found_mark.id, None
        self._first.clear()
        self._beating.clear()
        return reason if has_ended else None

    def _problem(self, found_mark: FoundMark, nodes: int) -> str:
        text = message(
            "{state}, and the directory known here has {mark}: is another one mounted, or none? "
            "Nothing of its {count} nodes is forgotten. It counts again when the known one is "
            "back, or when more than half of these nodes beat in this one. To confirm it, run "
            "vigil forget --mark {mark} --store {store} --yes"
        )
        fields = {"mark": self.id, "count": nodes, "store": self.url}
        if found_mark.id:
            state = sentence("{store} has the mark {mark}", store=self.url, mark=found_mark.id)
        elif found_mark.problem is None:
            state = sentence("{store} has no mark", store=self.url)
        else:
            # An error within a sentence, so that is English as a whole.
            return text.format(state=f"{self.url} {found_mark.problem}", **fields)
        return sentence(text, state=state, **fields)


class DirectoryMarks:
    """Checks the marks of ``stores``, by URL; the ids are in ``state_dir``.

    ``nodes`` are those that are known by the store with this URL. ``changed`` is called when a
    directory counts no more, or again.
    """

    def __init__(
        self,
        stores: Mapping[str, Store],
        state_dir: Path,
        nodes: Callable[[str], frozenset[str]],
        changed: Callable[[], None],
    ) -> None:
        self._marks: dict[str, StoreMark] = {
            url: store.mark for url, store in stores.items() if store.mark is not None
        }
        self._file = state_dir / FILE_NAME
        self._nodes = nodes
        self._changed = changed
        self._kept = self._read()
        self.known = {url: MarkKnowledge(url, self._kept.get(url, "")) for url in self._marks}
        self._unreadable: dict[str, str] = {}

    @property
    def problems(self) -> tuple[str, ...]:
        """Why directories do not count."""
        return tuple(
            knowledge.problem for knowledge in self.known.values() if knowledge.problem is not None
        )

    def problem(self, url: str) -> str | None:
        """Return why the directory at ``url`` does not count; ``None`` if it does."""
        return self.known[url].problem if url in self.known else None

    def observe_beats(self, url: str, beats: Iterable[Beat]) -> None:
        """Record the heartbeats that were listed in the store at ``url``."""
        if url in self.known:
            self.known[url].observe_beats(beats)

    async def run(self) -> None:
        """Check all marks every 4 s until cancelled; return at once where there are none."""
        while self._marks:
            await asyncio.sleep(PERIOD_SECONDS)
            await self.check()

    async def check(self) -> None:
        """Check all marks once. A store that gives no answer keeps its last result."""
        for url, mark in self._marks.items():
            try:
                found_mark = await mark.read()
            # The directory may hang; its last result stays until it answers.
            except StoreError:
                continue
            self._check(self.known[url], found_mark)
        await self._keep()

    def _check(self, knowledge: MarkKnowledge, found_mark: FoundMark) -> None:
        was = knowledge.problem
        reason = knowledge.check(found_mark, self._nodes(knowledge.url))
        if knowledge.problem is not None and was is None:
            _log.error("%s", knowledge.problem)
        elif reason is not None:
            _log.warning(
                "%s counts, %s: its mark is %s", knowledge.url, reason, knowledge.id or "none"
            )
        elif (
            found_mark.problem is not None
            and self._unreadable.get(knowledge.url) != found_mark.problem
        ):
            _log.warning("%s: another directory in its place cannot be noticed", found_mark.problem)
        self._unreadable[knowledge.url] = found_mark.problem or ""
        if knowledge.problem != was:
            self._changed()

    def _read(self) -> dict[str, str]:
        try:
            return _decoder.decode(self._file.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            _log.warning(
                "%s cannot be read, the directories that are there now count: %s", self._file, error
            )
            return {}

    async def _keep(self) -> None:
        ids = self._kept | {url: knowledge.id for url, knowledge in self.known.items()}
        if ids == self._kept:
            return
        self._kept = ids
        try:
            # The state directory may be on a slow disk, and steps must go on.
            await asyncio.to_thread(replace, self._file, msgspec.json.encode(ids))
        except OSError as error:
            _log.warning("%s cannot be written: %s", self._file, error)
