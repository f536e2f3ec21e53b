"""The filters of ``vigil support`` over arbitrary texts: no known secret and no name stays."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from contract.errors import VigilError
from vigil.support.pseudonyms import Pseudonyms
from vigil.support.secrets import SecretRemover

if TYPE_CHECKING:
    from collections.abc import Callable

_SECRET = "Zq7-planted-Zq7"
_NODE = "rack7-planted-node"
_MAX_CHARACTERS = 20_000
_REMOVER = SecretRemover([_SECRET])
_TEXTS = (
    json.dumps(f"dial mqtts://agent:{_SECRET}@10.0.0.7:8883 from node {_NODE} failed\n"),
    json.dumps({"password": _SECRET, "node": _NODE, "text": f'a "{_SECRET}"\n{_NODE}'}),
    json.dumps(
        f"-----BEGIN PRIVATE KEY-----\n{_SECRET}\n-----END PRIVATE KEY-----\nBearer abcdefg"
    ),
    json.dumps(json.dumps({"pod": "team/train-0", "token": _SECRET})),
)


def _filter(text: str) -> None:
    """Check that the known secret and the known node are in no result."""
    # Linear in the length; the limit of an input is for parsers of short ones.
    text = text[:_MAX_CHARACTERS]
    pseudonyms = Pseudonyms(b"key")
    pseudonyms.add("node", _NODE)
    cleaned = _REMOVER.text(text)
    assert _SECRET not in cleaned
    pseudonyms.learn(cleaned)
    # A letter or a digit beside it makes it another name.
    shown = pseudonyms.text(f"{cleaned} {_NODE} \\n{_NODE}")
    assert f" {_NODE}" not in shown
    assert not shown.endswith(_NODE)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        # A page that is not JSON is kept as a text, which is checked above.
        raise VigilError(str(error)) from None
    assert _SECRET not in json.dumps(pseudonyms.value(_REMOVER.value(value)))


PARSERS: dict[str, tuple[tuple[str, ...], Callable[[str], None]]] = {
    "support-text": (_TEXTS, _filter),
}
"""By name: texts to begin with, and the function that checks."""
