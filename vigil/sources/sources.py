"""Chooses the source: the first one that answers, in the order of ``--server`` to ``--store``.

A server that is named is the only source. Otherwise the order is: sockets on which a daemon
listens, for a history the journal, the API server, the documents of a store. After the first answer
all questions go to that source, since another one may be of another time.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from contract.errors import StoreError, StoreUnavailable, printable
from contract.sentences import joined, sentence
from service.log.setup import last_words
from vigil.daemon_client import DaemonClient, OtherNode, is_listening
from vigil.language import shown_error, translated
from vigil.sources.daemon import DaemonSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vigil.sources.source import AnswerSource

T = TypeVar("T")

_ANSWER_SECONDS = 10.0
_KUBERNETES = "kubernetes:"
AGENT_PLACE = (Path("/var/lib/npu-vigil"), "agent.sock")
AGGREGATOR_PLACE = (Path("/var/lib/npu-vigil-aggregator"), "aggregator.sock")
_USUAL_KUBECONFIG = Path("~/.kube/config")


class SourceQuestion(Enum):
    """Who can answer: each daemon, no agent, or also the journal of an agent that does not run."""

    NODES = "nodes"
    CLUSTER = "cluster"
    HISTORY = "history"


@dataclass
class AnswerSources:
    """Asks the sources that the options allow, one after the other; stays with the first answer.

    ``kind`` is what all questions are about; the other options are as they were given.
    """

    server: str | None
    state_dir: Path | None
    kubeconfig: Path | None
    store: str | None
    kind: SourceQuestion
    _chosen: AnswerSource | None = field(default=None, init=False)

    @property
    def chosen(self) -> AnswerSource:
        """Return the source that answered."""
        assert self._chosen is not None
        return self._chosen

    def query(self, question: Callable[[AnswerSource], T]) -> T:
        """Return the answer to ``question``.

        Why a source did not answer is printed as a line of standard error, and the next one is
        asked; so it is after the agent of another node. Raises why the last one did not answer.
        """
        # While watching, all answers are of one source: others may be of another time.
        if self._chosen is not None:
            return question(self._chosen)
        other: OtherNode | None = None
        failed: StoreError | None = None
        for source in self._candidates():
            if failed is not None:
                _note(failed)
                failed = None
            try:
                answer = question(source)
                self._chosen = source
                return answer
            except OtherNode as error:
                other = error
            except StoreError as error:
                failed = error
            finally:
                # Only the source that answered stays open.
                if self._chosen is None:
                    source.close()
        raise failed or other or StoreUnavailable(self._nothing())

    def close(self) -> None:
        """Give back what the chosen source keeps open."""
        if self._chosen is not None:
            self._chosen.close()

    def _candidates(self) -> Iterator[AnswerSource]:
        if self.server is not None:
            yield DaemonSource(DaemonClient(self.server, _ANSWER_SECONDS))
            return
        for path in self._sockets():
            # A left socket file is not a candidate, so its failure is not printed.
            if is_listening(path):
                yield DaemonSource(DaemonClient(f"unix:{path}", _ANSWER_SECONDS))
        if self.kind is SourceQuestion.HISTORY:
            yield from self._journal()
        kubeconfig = kubeconfig_of(self.kubeconfig)
        if kubeconfig is not None:
            from vigil.sources.api_server import ApiServerClient

            yield DaemonSource(ApiServerClient(kubeconfig))
        # Documents last: they lack what only a daemon knows.
        store = self.store or (_KUBERNETES if kubeconfig is not None else None)
        if store is not None:
            from vigil.sources.documents import StoreSource

            yield StoreSource(store, kubeconfig)

    def _journal(self) -> Iterator[AnswerSource]:
        """Yield the journal on this host, where no agent runs."""
        from vigil.sources.journal import JournalSource, has_journal

        directory = self.state_dir or AGENT_PLACE[0]
        if has_journal(directory):
            yield JournalSource(directory)

    def _sockets(self) -> list[Path]:
        places = (
            (AGGREGATOR_PLACE,)
            if self.kind is SourceQuestion.CLUSTER
            else (AGENT_PLACE, AGGREGATOR_PLACE)
        )
        return [(self.state_dir or usual) / name for usual, name in places]

    def _nothing(self) -> str:
        places = [f"unix:{path}" for path in self._sockets()]
        return sentence(
            "{places}: no daemon listens there; start the agent, or name another daemon by "
            "--server, a cluster by --kubeconfig, or documents by --store",
            places=joined("{before} or {part}", places),
        )


def kubeconfig_of(given: Path | None) -> str | None:
    """Return the files with the way to the API server: given, of the environment, usual."""
    from stores.address import kubeconfig_files

    if given is not None or os.environ.get("KUBECONFIG"):
        return kubeconfig_files(given)
    usual = _USUAL_KUBECONFIG.expanduser()
    return str(usual) if usual.is_file() else None


def _note(error: StoreError) -> None:
    next_source = translated("asking the next source")
    text = f"vigil: {shown_error(error)}; {next_source}"
    print(last_words(printable(text)), file=sys.stderr)
