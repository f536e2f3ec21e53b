"""A release is verified with a key file: every change of its files or its name is refused."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from release.__main__ import main
from release.manifest import (
    MANIFEST_NAME,
    SIGNATURE_NAME,
    RefusedError,
    provenance,
    sha256,
    sign,
    verify,
    write_manifest,
)
from tests.documented_commands import blocks_of_commands
from tests.release.keys import new_key

if TYPE_CHECKING:
    from pathlib import Path

# ssh-keygen comes with git's packages, but not with every machine.
pytestmark = pytest.mark.server
_RELEASE = "npu-vigil 0.1.0"


@pytest.fixture
def signers(tmp_path: Path) -> Path:
    """Return the allowed signers of a signed release in ``tmp_path / "dist"``."""
    key, allowed = new_key(tmp_path, "key")
    dist = tmp_path / "dist"
    dist.mkdir()
    for name in ("wheel", "chart"):
        (dist / name).write_text(f"content of {name}\n")
    sign(write_manifest(dist, _RELEASE), key)
    return allowed


def test_an_unchanged_release_is_accepted(tmp_path: Path, signers: Path) -> None:
    assert verify(tmp_path / "dist", _RELEASE, signers) == 2
    command = ("verify", str(tmp_path / "dist"), "0.1.0", "--signers", str(signers))
    assert main(command) == 0
    subprocess.run(
        ["sha256sum", "--check", "--strict", MANIFEST_NAME], cwd=tmp_path / "dist", check=True
    )


def test_the_commands_of_the_document_make_a_key_and_verify(tmp_path: Path) -> None:
    made, verified = (
        block.text
        for block in blocks_of_commands()
        if (block.document, block.headings[-1]) == ("docs/release.md", "Keys")
    )
    # Without a terminal ssh-keygen cannot ask for a password.
    made = made.replace("ssh-keygen", "ssh-keygen -N ''")
    subprocess.run(["bash", "-euc", made], cwd=tmp_path, check=True)
    (tmp_path / "wheel").write_text("content")
    manifest = write_manifest(tmp_path, _RELEASE)
    sign(manifest, tmp_path / "release-key")
    subprocess.run(["bash", "-euc", verified], cwd=tmp_path, check=True)
    manifest.write_text(manifest.read_text() + "\n")
    assert subprocess.run(["bash", "-euc", verified], cwd=tmp_path).returncode != 0


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("wheel", "Content of wheel\n", "^wheel was changed$"),
        ("chart", None, "^chart is missing$"),
        (MANIFEST_NAME, None, f"{MANIFEST_NAME} is missing"),
        (SIGNATURE_NAME, None, f"{SIGNATURE_NAME} is missing"),
        ("extra", "not ours\n", r"^extra: not in the manifest$"),
    ],
)
def test_a_file_that_changed_or_is_missing_or_was_added_is_refused(
    tmp_path: Path, signers: Path, name: str, content: str | None, problem: str
) -> None:
    file = tmp_path / "dist" / name
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    with pytest.raises(RefusedError, match=problem):
        verify(tmp_path / "dist", _RELEASE, signers)


def test_another_key_is_refused(tmp_path: Path, signers: Path) -> None:
    key, others = new_key(tmp_path, "another")
    with pytest.raises(RefusedError, match="signature"):
        verify(tmp_path / "dist", _RELEASE, others)
    # The same the other way round: a release that another key signed.
    sign(tmp_path / "dist" / MANIFEST_NAME, key)
    with pytest.raises(RefusedError, match="signature"):
        verify(tmp_path / "dist", _RELEASE, signers)


def test_an_old_release_under_a_new_name_is_refused(
    tmp_path: Path, signers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("verify", str(tmp_path / "dist"), "0.2.0", "--signers", str(signers))
    assert main(command) == 1
    assert "the manifest is of npu-vigil 0.1.0, not of npu-vigil 0.2.0" in capsys.readouterr().err
    manifest = tmp_path / "dist" / MANIFEST_NAME
    manifest.write_text(manifest.read_text().replace("0.1.0", "0.2.0"))
    with pytest.raises(RefusedError, match="signature"):
        verify(tmp_path / "dist", "npu-vigil 0.2.0", signers)


def test_the_statement_names_each_file_and_input(tmp_path: Path, signers: Path) -> None:
    dist = tmp_path / "dist"
    module = "pkg:golang/example.org/program@v1.0.0"
    inputs = {"requirements.lock": "ab", module: "cd"}
    statement = json.loads(provenance(dist, "c0ffee", inputs))
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert {each["name"]: each["digest"]["sha256"] for each in statement["subject"]} == {
        name: sha256(dist / name) for name in ("wheel", "chart")
    }
    resolved = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert [each["digest"] for each in resolved] == [
        {"gitCommit": "c0ffee"},
        {"dirHash": "cd"},
        {"sha256": "ab"},
    ]
