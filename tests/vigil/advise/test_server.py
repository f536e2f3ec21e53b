"""``vigil advise --server``: what is asked of an aggregator, and how its answers are shown."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from typer.testing import CliRunner

from advisor.options import Profile
from advisor.report import (
    Action,
    AdviceReport,
    Deletion,
    JobDecision,
    Placement,
    PodRef,
    WorkloadKind,
)
from aggregator.advising.status import AdviceOfJob, AdviceStatus, AssumedAdvice
from contract.errors import ConfigurationError, StoreUnavailable
from contract.sentences import english, sentence
from tests.parts.page_messages import messages_of
from tests.parts.verbs import run_verb
from vigil.advise import server
from vigil.main import app

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typer.testing import Result


class Asked:
    """The requests, and the answers to them in turn; the last one goes on."""

    def __init__(self, *replies: tuple[int, Any]) -> None:
        self.replies = list(replies)
        self.paths: list[str] = []
        self.url = ""

    def vigil(self, *options: str) -> Result:
        """Run the verb against it."""
        return CliRunner().invoke(app, ["advise", "--server", self.url, *options])


@contextmanager
def serving(asked: Asked) -> Iterator[Asked]:
    """Answer on a port of this host."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.paths.append(self.path)
            status, value = asked.replies.pop(0) if len(asked.replies) > 1 else asked.replies[0]
            body = msgspec.json.encode(value)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as daemon:
        asked.url = f"http://127.0.0.1:{daemon.server_port}"
        thread = threading.Thread(target=daemon.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield asked
        finally:
            daemon.shutdown()
            thread.join()


def report(now_ms: int = 1, *, deletes: bool = False) -> AdviceReport:
    """Return a report of ``upstream``, with a deletion or not."""
    pods = (Deletion("ns", "a", "u-a", 0),)
    decision = JobDecision(
        "ns", "ns/j", WorkloadKind.VCJOB, Action.FORCE_DELETE, "D15", (), "", pods=pods
    )
    return AdviceReport(Profile.UPSTREAM, now_ms, decisions=(decision,) if deletes else ())


def advice(*reports: AdviceReport) -> dict[str, Any]:
    """Return the page of all jobs."""
    return {"at_ms": 1, "enabled": True, "advice": AdviceStatus(1, reports=reports)}


def of_job(*reports: AdviceReport) -> AdviceOfJob:
    """Return the page of a job."""
    return AdviceOfJob(1, {"vcjobs": "no right"}, reports, 1, "ns", "j", ("ns/j",))


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ([], "/api/v1/advice"),
        (["--node", "n1"], "/api/v1/advice?node=n1"),
        (["--job", "ns/j"], "/api/v1/advice/ns/j"),
        (["--job", "ns/j", "--node", "n1"], "/api/v1/advice/ns/j?node=n1"),
    ],
)
def test_the_page_that_is_asked(options: list[str], path: str) -> None:
    page = of_job(report(deletes=True)) if "--job" in options else advice(report(deletes=True))
    with serving(Asked((200, page))) as asked:
        shown = asked.vigil(*options)
    assert (shown.exit_code, asked.paths) == (1, [path])
    assert "deletes with 0 s: a" in shown.stdout
    assert ("vcjobs: no right" in shown.stdout) == ("--job" in options)


def test_sentences_of_the_aggregator_are_shown_in_chinese() -> None:
    short = sentence("FreeCards: {count} asked, {free} free", count=2, free=1)
    placement = Placement((PodRef("ns", "a", "u-a"),), (), {"n1": short})
    hit = sentence("rank 0, {pod}, is hit", pod="a")
    reason = sentence("{fault}: {reason}", fault="CardUnhealthy", reason=hit)
    made = report(deletes=True)
    decision = msgspec.structs.replace(made.decisions[0], why=reason)
    page = of_job(msgspec.structs.replace(made, decisions=(decision,), placement=(placement,)))
    texts = []
    for answer in (msgspec.structs.replace(page, messages=messages_of(page)), page):
        with serving(Asked((200, msgspec.to_builtins(answer, enc_hook=english)))) as asked:
            options = ("advise", "--server", asked.url, "--job", "ns/j")
            _, output, _ = run_verb("--lang", "zh", *options)
            texts.append(output.decode())
    assert "CardUnhealthy：rank 0（a）受影响" in texts[0]
    assert "FreeCards: 请求 2 张，空闲 1 张: n1" in texts[0]
    # An earlier aggregator has no messages: its texts are English as a whole.
    assert "CardUnhealthy: rank 0, a, is hit" in texts[1]
    assert "FreeCards: 2 asked, 1 free: n1" in texts[1]


def test_assumptions_are_asked_again_while_others_are_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "_RETRY_SECONDS", 0.01)
    found = AssumedAdvice(1, ("heal n1",), {}, (report(deletes=True),), (report(),))
    with serving(Asked((503, {"error": "busy"}), (503, {"error": "busy"}), (200, found))) as asked:
        shown = asked.vigil("--what-if", "heal n1", "--what-if", "n2 gone", "--job", "ns/j")
    path = "/api/v1/advice/what-if?what_if=heal+n1&what_if=n2+gone&job=ns%2Fj"
    assert (shown.exit_code, asked.paths) == (1, [path] * 3)
    assert "+ deletion of ns/a with 0 s" in shown.stdout
    monkeypatch.setattr(server, "_BUSY_SECONDS", 0.0)
    with serving(Asked((503, {"error": "busy"}))) as asked:
        refused = asked.vigil("--what-if", "heal n1")
    assert isinstance(refused.exception, StoreUnavailable)


@pytest.mark.parametrize("status", [400, 404])
def test_a_refusal_of_an_aggregator_is_wrong_use(status: int) -> None:
    with serving(Asked((status, {"error": "there is no Node n9"}))) as asked:
        refused = asked.vigil("--what-if", "n9 gone")
    assert isinstance(refused.exception, ConfigurationError)
    assert "there is no Node n9" in str(refused.exception)


def test_assumptions_that_are_none_are_not_even_asked() -> None:
    with serving(Asked((200, advice()))) as asked:
        refused = asked.vigil("--what-if", "heal")
    assert isinstance(refused.exception, ConfigurationError)
    assert asked.paths == []


def test_watch_shows_each_change_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_PERIOD_SECONDS", 0.0)
    pages = [report(1), report(2), report(3, deletes=True), report(4, deletes=True), report(5)]
    with serving(Asked(*((200, advice(one)) for one in pages))) as asked:
        found = server.from_server(asked.url, tuple(Profile), None, None, (), watch=True)
        shown = [next(found)[0].report.now_ms for _ in range(3)]
    assert shown == [1, 3, 5]
