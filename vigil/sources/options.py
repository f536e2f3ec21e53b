"""Options of the verbs that ask a daemon."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from vigil.language import OPTION, VARIABLE, Language
from vigil.language import chosen as chosen_language
from vigil.options import Json as Json

if TYPE_CHECKING:
    from vigil.sources.sources import AnswerSources


Server: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        envvar="VIGIL_SERVER",
        help="Ask this agent or aggregator: http://HOST:PORT, https://HOST:PORT or unix:PATH.",
        show_default="the agent on this host, its aggregator, that of the cluster, documents",
    ),
]
StateDir: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        envvar="VIGIL_STATE_DIR",
        help="State directory of the agent or aggregator on this host; contains its socket.",
        show_default="/var/lib/npu-vigil, /var/lib/npu-vigil-aggregator",
    ),
]
Kubeconfig: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        envvar="VIGIL_KUBECONFIG",
        help="Where no daemon on this host answers: ask the aggregator of this cluster.",
        show_default="KUBECONFIG, ~/.kube/config",
    ),
]
Store: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        envvar="VIGIL_STORE",
        help="Where no daemon answers: read the documents of this store; as for the aggregator.",
        show_default="kubernetes: with a kubeconfig",
    ),
]
Lang: TypeAlias = Annotated[
    Language | None,
    typer.Option(
        OPTION,
        envvar=VARIABLE,
        help="Language of what people read. The names of faults follow LANG without it.",
        show_default="en",
    ),
]
Utc: TypeAlias = Annotated[bool, typer.Option("--utc", help="Show times in UTC.")]
Watch: TypeAlias = Annotated[
    bool, typer.Option("--watch", help="Keep running and print each change, until Ctrl-C.")
]


def sources_of(
    server: str | None,
    state_dir: Path | None,
    kubeconfig: Path | None,
    store: str | None,
    kind: str = "nodes",
) -> AnswerSources:
    """Return what may answer: ``server``, else a daemon on this host, of the cluster, documents.

    ``kind`` is a ``SourceQuestion`` of ``vigil.sources.sources``.
    """
    from vigil.sources.sources import AnswerSources, SourceQuestion

    return AnswerSources(server, state_dir, kubeconfig, store, SourceQuestion(kind))


def language_of(chosen: Language | None) -> Language:
    """Return the language of the names of faults: the chosen one, else that of the locale."""
    import os

    if language := chosen or chosen_language():
        return language
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if os.environ.get(name):
            return Language.CHINESE if os.environ[name].startswith("zh") else Language.ENGLISH
    return Language.ENGLISH
