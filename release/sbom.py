"""The software bill of materials: CycloneDX 1.6, of what is installed and of the lock's hashes.

Versions, licences and dependencies come from the metadata of the environment that runs this, hashes
from ``requirements.lock``. The document has no time and no number of its own: the serial number is
made of the content, the time is the commit's. So the same source gives the same document.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from datetime import UTC, datetime
from importlib.metadata import Distribution, distribution
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PRODUCT = "npu-vigil"
Lock: TypeAlias = "dict[str, tuple[str, frozenset[str]]]"
"""Version and SHA-256 hashes of archives, by the name of the distribution."""
_PINNED = re.compile(
    r"^(?P<name>[\w.-]+)==(?P<version>[^\s;]+)(?P<rest>(?:.*\\\n)*.*)$", re.MULTILINE
)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def read_lock(text: str) -> Lock:
    """Return the pinned distributions of a ``requirements.lock``."""
    return {
        canonicalize_name(match["name"]): (
            match["version"],
            frozenset(_HASH.findall(match["rest"])),
        )
        for match in _PINNED.finditer(text)
    }


def required(root: str) -> dict[str, Distribution]:
    """Return the installed distributions that ``root`` needs at run time, by name; without it.

    Raises ``PackageNotFoundError`` where one of them is not installed.
    """
    closure: dict[str, Distribution] = {}
    waiting = list(_needs(distribution(root)))
    while waiting:
        name = waiting.pop()
        if name not in closure:
            closure[name] = distribution(name)
            waiting.extend(_needs(closure[name]))
    return dict(sorted(closure.items()))


def _needs(installed: Distribution) -> list[str]:
    """Return what ``installed`` needs here without any extra."""
    requirements = (Requirement(line) for line in installed.requires or ())
    return sorted(
        {
            canonicalize_name(requirement.name)
            for requirement in requirements
            # A condition on an extra cannot be evaluated without a value for it.
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        }
    )


def bill_of_materials(lock: Lock, commit: str, epoch: int) -> bytes:
    """Return the document for the installed product.

    Raises ``ValueError`` where a distribution is not the locked one or names no licence.
    """
    installed = required(PRODUCT)
    product = distribution(PRODUCT)
    purls = {name: _purl(name, each) for name, each in installed.items()}
    purls[PRODUCT] = _purl(PRODUCT, product)
    needed_by = {PRODUCT: product, **installed}
    content: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": purls[PRODUCT],
                "name": PRODUCT,
                "version": product.version,
                "licenses": _licences(product),
                "purl": purls[PRODUCT],
                "properties": [{"name": "npu-vigil:commit", "value": commit}],
            },
        },
        "components": [
            _component(each, purls[name], lock, name) for name, each in installed.items()
        ],
        "dependencies": [
            {"ref": purls[name], "dependsOn": sorted(purls[needed] for needed in _needs(each))}
            for name, each in sorted(needed_by.items())
        ],
    }
    return _numbered(content)


def image_bill(bill: bytes, name: str, debian: Iterable[tuple[str, str, str]]) -> bytes:
    """Return the document of the image ``name``, from that of the product.

    ``debian`` has name, version and architecture of each package of its base.
    """
    content = json.loads(bill)
    del content["serialNumber"]
    product = content["metadata"]["component"]
    image = {"type": "container", "bom-ref": name, "name": name, "version": product["version"]}
    packages = [
        {"type": "library", "bom-ref": purl, "name": package, "version": version, "purl": purl}
        for package, version, architecture in debian
        for purl in (f"pkg:deb/debian/{package}@{quote(version)}?arch={architecture}",)
    ]
    content["metadata"]["component"] = image
    content["components"] += [product, *packages]
    needs = sorted(each["bom-ref"] for each in (product, *packages))
    content["dependencies"].append({"ref": name, "dependsOn": needs})
    return _numbered(content)


def _numbered(content: dict[str, Any]) -> bytes:
    """Return ``content`` with a serial number that is made of it."""
    digest = hashlib.sha256(_encoded(content)).hexdigest()
    content["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, digest)}"
    return _encoded(content)


def _encoded(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=1, sort_keys=True).encode() + b"\n"


def _purl(name: str, installed: Distribution) -> str:
    return f"pkg:pypi/{name}@{installed.version}"


def _component(installed: Distribution, purl: str, lock: Lock, name: str) -> dict[str, Any]:
    version, hashes = lock.get(name, ("nothing", frozenset()))
    if version != installed.version:
        raise ValueError(f"{name} {installed.version} is installed, {version} is locked")
    archives = [{"alg": "SHA-256", "content": digest} for digest in sorted(hashes)]
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "licenses": _licences(installed),
        "purl": purl,
        # The lock allows each archive of the version: one for each platform, and the source.
        "externalReferences": [{"type": "distribution", "url": purl, "hashes": archives}],
    }


def _licences(installed: Distribution) -> list[dict[str, Any]]:
    """Return the licences: an SPDX expression, or where older metadata has none, its own names."""
    metadata = installed.metadata.json
    if expression := metadata.get("license_expression"):
        return [{"expression": expression}]
    classifiers = [text for text in metadata.get("classifier", ()) if "License ::" in text]
    names = [text.rpartition(" :: ")[2] for text in classifiers]
    # Some older metadata has the whole text of the licence in this field.
    if (name := str(metadata.get("license", ""))) and "\n" not in name:
        names = [name]
    if not names:
        raise ValueError(f"{metadata['name']}: the metadata names no licence")
    return [{"license": {"name": name}} for name in names]
