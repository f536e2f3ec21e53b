"""Reads the layers of an OCI archive, which holds one image."""

from __future__ import annotations

import json
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tarfile


def read_layers(archive: tarfile.TarFile) -> list[IO[bytes]]:
    """Return each layer, the base first: a compressed tar archive."""
    (entry,) = _document(archive, "index.json")["manifests"]
    layers = _document(archive, _blob(entry))["layers"]
    return [_file(archive, _blob(layer)) for layer in layers]


def _blob(entry: dict[str, str]) -> str:
    return f"blobs/sha256/{entry['digest'].removeprefix('sha256:')}"


def _document(archive: tarfile.TarFile, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.load(_file(archive, name))
    return content


def _file(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    file = archive.extractfile(name)
    assert file is not None
    return file
