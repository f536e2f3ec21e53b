"""The record by which ``vigil forget NODE`` ends a node on a broker or in a directory.

Absence from a list is not a deletion there (``docs/decisions/021``). So the verb leaves a record
that an operator ended the node, and then deletes the documents and the heartbeat of the node. An
aggregator, now or when it is started, ends what is absent of the node, and deletes the record a
touch period after the node was dropped. Records are documents of a namespace of their own, so that
a reader of them is sent no other documents. On a broker they lie below ``vigil/v1/config``, where
no agent may write.
"""

from __future__ import annotations

import msgspec

from contract.errors import DocumentError
from contract.names import node_name_problem
from contract.validation_texts import decode_text

FORGET_NAMESPACE = "npu-vigil"
FORGET_PREFIX = "npu-vigil-forget-"
FORGET_LABEL = ("npu-vigil/forget", "true")
FORGET_KEY = "Forget"
_MAX_BYTES = 4096


class ForgetRecord(msgspec.Struct, frozen=True):
    """An operator ended ``node``.

    ``at_ms`` is epoch milliseconds. It ends what is not later than it: ``beaten_at_ms`` of the last
    heartbeat and the time in each document, which are times of the node's clock. The verb, which
    reads them, makes it no earlier than they are. ``by`` names who did it, for people.
    """

    node: str
    at_ms: int
    by: str


_decoder = msgspec.json.Decoder(ForgetRecord)


def forget_record_name(node: str) -> str:
    """Return the name of the record about ``node``."""
    return FORGET_PREFIX + node


def encode_forget_record(record: ForgetRecord) -> dict[str, str]:
    """Return the data of the record's document."""
    return {FORGET_KEY: msgspec.json.encode(record).decode()}


def decode_forget_record(name: str, data: dict[str, str]) -> ForgetRecord:
    """Return the record in the document ``name``. Raises ``DocumentError``."""
    text = data.get(FORGET_KEY)
    if text is None:
        raise DocumentError(name, FORGET_KEY, "is missing")
    if len(text) > _MAX_BYTES:
        raise DocumentError(name, FORGET_KEY, f"has {len(text)} characters, at most 4096 are read")
    try:
        record = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise DocumentError(name, FORGET_KEY, decode_text(error)) from None
    if problem := node_name_problem(record.node):
        raise DocumentError(name, FORGET_KEY, f"the node's name {problem}")
    if name != forget_record_name(record.node):
        raise DocumentError(name, FORGET_KEY, f"it is about node {record.node!r}, not of this name")
    return record
