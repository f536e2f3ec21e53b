"""Known advisories by the real pip-audit; a server of the test stands in for the service OSV."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from release.advisories import (
    NONE_OPEN,
    NOT_KNOWN,
    OPEN,
    STATEMENTS_NAME,
    Dependency,
    NoResultError,
    audit,
    judge,
)
from tests.parts.tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow
_KEPT = (ROOT / STATEMENTS_NAME).read_bytes()
_VERSION = "2.1.0"
_ADVISORY = {
    "id": "PYSEC-2026-1",
    "aliases": ["CVE-2026-0001"],
    "summary": "text",
    "affected": [
        {
            "package": {"name": "paho-mqtt", "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "2.2"}]}],
        }
    ],
}


class _Service(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        affected = query["package"]["name"] == "paho-mqtt"
        body = json.dumps({"vulns": [_ADVISORY]} if affected else {}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Write nothing."""


@pytest.fixture(scope="module")
def osv_url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Service) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1/query"
        server.shutdown()
        thread.join()


def _lock(folder: Path) -> Path:
    path = folder / "requirements.lock"
    digest = f"--hash=sha256:{'0' * 64}"
    path.write_text(f"idna==3.10 \\\n    {digest}\npaho-mqtt=={_VERSION} \\\n    {digest}\n")
    return path


@pytest.fixture(scope="module")
def audited(osv_url: str, tmp_path_factory: pytest.TempPathFactory) -> list[Dependency]:
    return audit(_lock(tmp_path_factory.mktemp("lock")), osv_url)


def _schema_error(statements: str) -> object:
    """Return what the schema of CycloneDX refuses; ``None`` where it accepts the statements."""
    # Its import builds forty parsers, which takes each process that collects this file 3 s.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    return JsonStrictValidator(SchemaVersion.V1_6).validate_str(statements)


def _statements(version: str = _VERSION, **changes: str) -> bytes:
    analysis = {"state": "not_affected", "justification": "code_not_reachable", "detail": "unused"}
    statement = {
        "id": "CVE-2026-0001",
        "affects": [{"ref": f"pkg:pypi/paho-mqtt@{version}"}],
        "analysis": analysis | changes,
    }
    text = json.dumps(json.loads(_KEPT) | {"vulnerabilities": [statement]})
    assert _schema_error(text) is None
    return text.encode()


def test_the_kept_statements_are_valid() -> None:
    assert _schema_error(_KEPT.decode()) is None


def test_an_advisory_without_a_statement_is_open(audited: list[Dependency]) -> None:
    assert judge(audited, _KEPT) == (
        OPEN,
        [
            "2 of 2 packages were judged: 1 advisories, 0 of them do not apply",
            f"paho-mqtt {_VERSION}: PYSEC-2026-1, fixed in 2.2",
        ],
    )


def test_a_statement_answers_an_advisory_by_its_alias(audited: list[Dependency]) -> None:
    assert judge(audited, _statements()) == (
        NONE_OPEN,
        ["2 of 2 packages were judged: 1 advisories, 1 of them do not apply"],
    )


@pytest.mark.parametrize(
    ("version", "changes"),
    [("2.0.0", {}), (_VERSION, {"state": "exploitable"}), (_VERSION, {"detail": ""})],
    ids=["another version", "affected", "without a reason"],
)
def test_a_statement_that_does_not_fit_answers_nothing(
    audited: list[Dependency], version: str, changes: dict[str, str]
) -> None:
    assert judge(audited, _statements(version, **changes)).status == OPEN


def test_what_could_not_be_judged_is_not_known(audited: list[Dependency]) -> None:
    skipped = Dependency("idna", skip_reason="Dependency not found on PyPI")
    outcome = judge([skipped, *audited[1:]], _statements())
    assert outcome.status == NOT_KNOWN
    assert outcome.lines[-1] == "not judged: Dependency not found on PyPI"
    assert judge([], _KEPT).status == NOT_KNOWN


def test_a_service_that_does_not_answer_is_not_taken_for_none(tmp_path: Path) -> None:
    with pytest.raises(NoResultError, match="pip-audit gave no result"):
        audit(_lock(tmp_path), "http://127.0.0.1:1/v1/query")
