"""The manifest of checksums, its signature, and the statement of where the files come from.

The manifest names the release, and the signature covers the manifest. So a file that was changed,
is missing or was added is refused, and so is an old release under a new name. ``ssh-keygen -Y``
signs: every machine with OpenSSH can verify, and the key is an ordinary file.
"""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MANIFEST_NAME = "SHA256SUMS"
SIGNATURE_NAME = f"{MANIFEST_NAME}.sig"
NAMESPACE = "npu-vigil-release"
SIGNER = "npu-vigil-release"
"""The name of the key in the file of allowed signers."""


class RefusedError(Exception):
    """The files are not those of the release. The text names the reason."""


def sha256(path: Path) -> str:
    """Return the SHA-256 of the file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(folder: Path, release: str) -> Path:
    """Write the checksums of all files of ``folder``; return the path of the manifest.

    ``sha256sum --check`` reads it too: a line that begins with ``#`` is a comment for it.
    """
    lines = [f"# {release}\n", *(f"{sha256(path)}  {path.name}\n" for path in _files(folder))]
    manifest = folder / MANIFEST_NAME
    manifest.write_text("".join(lines), encoding="utf-8")
    return manifest


def sign(manifest: Path, key: Path) -> None:
    """Sign the manifest with an OpenSSH private key; the signature lies beside it."""
    signature = manifest.with_name(SIGNATURE_NAME)
    # ssh-keygen asks before it replaces a file, and a build has no terminal.
    signature.unlink(missing_ok=True)
    command = ["ssh-keygen", "-Y", "sign", "-f", str(key), "-n", NAMESPACE, str(manifest)]
    subprocess.run(command, check=True, capture_output=True)


def verify(folder: Path, release: str, allowed_signers: Path) -> int:
    """Check signature, release and all files of ``folder``; return the number of files.

    Raises ``RefusedError`` with the first reason. The signature comes first: nothing of a manifest
    counts before it.
    """
    manifest, signature = folder / MANIFEST_NAME, folder / SIGNATURE_NAME
    for path in (manifest, signature):
        if not path.is_file():
            raise RefusedError(f"{path} is missing")
    command = [
        *("ssh-keygen", "-Y", "verify", "-f", str(allowed_signers), "-I", SIGNER),
        *("-n", NAMESPACE, "-s", str(signature)),
    ]
    # Read once: the bytes with the valid signature are the bytes that are parsed.
    data = manifest.read_bytes()
    done = subprocess.run(command, input=data, capture_output=True, check=False)
    if done.returncode:
        raise RefusedError(f"the signature of {manifest} is not valid for the key of {SIGNER}")
    first, *lines = data.decode().splitlines()
    if first != f"# {release}":
        raise RefusedError(f"the manifest is of {first.removeprefix('# ')}, not of {release}")
    expected = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    present = {path.name: path for path in _files(folder)}
    for name, digest in expected.items():
        if name not in present:
            raise RefusedError(f"{name} is missing")
        if sha256(present[name]) != digest:
            raise RefusedError(f"{name} was changed")
    # A file that was added would be installed with the signed ones.
    if unlisted := present.keys() - expected.keys():
        raise RefusedError(f"{', '.join(sorted(unlisted))}: not in the manifest")
    return len(expected)


def _files(folder: Path) -> list[Path]:
    """Return all files of ``folder`` but manifest and signature, in order of their names."""
    # Neither exists yet when the manifest is made.
    own = (MANIFEST_NAME, SIGNATURE_NAME)
    return sorted(path for path in folder.iterdir() if path.name not in own)


def provenance(folder: Path, commit: str, inputs: Mapping[str, str]) -> bytes:
    """Return an in-toto statement (v1) about all files of ``folder``.

    Its predicate is SLSA provenance v1. ``inputs`` has the SHA-256 of each file that the build
    read, by name; the source itself is named by its commit. A name that begins with ``pkg:golang``
    is a Go module, whose SHA-256 is of the list of its files.
    """
    source = {"uri": "git:npu-vigil", "digest": {"gitCommit": commit}}
    read = [
        {"uri": name, "digest": {_digest_kind(name): digest}}
        for name, digest in sorted(inputs.items())
    ]
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"name": path.name, "digest": {"sha256": sha256(path)}} for path in _files(folder)
        ],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:npu-vigil:make-release:1",
                "externalParameters": {},
                "internalParameters": {"python": platform.python_version()},
                "resolvedDependencies": [source, *read],
            },
            "runDetails": {"builder": {"id": "urn:npu-vigil:make-release"}},
        },
    }
    return json.dumps(statement, indent=1).encode() + b"\n"


def _digest_kind(name: str) -> str:
    return "dirHash" if name.startswith("pkg:golang/") else "sha256"
