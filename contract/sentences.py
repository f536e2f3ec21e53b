"""Sentences for people, which a verb can show in another language.

The English text is the key of its translation: a whole sentence or heading, with named fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Sentence(str):
    """An English text that can be shown in the chosen language, with its template and fields."""

    __slots__ = ("fields", "template")

    template: str
    fields: Mapping[str, object]


def sentence(text: str, /, **fields: object) -> str:
    """Return ``text`` in English with its ``{fields}`` filled in, to be translated by ``shown``.

    Reports keep it, so their JSON is English. A field is a name, a number or a sentence, never a
    text that a daemon made: that is English in each language. The exceptions are an error behind
    a colon (decision 92), and what an error quotes: the reason of the system, of TLS or of a
    parser, or the answer of a server.
    """
    result = Sentence(text.format(**fields) if fields else text)
    result.template, result.fields = text, fields
    return result


def counted(count: int, singular: str, plural: str, /, **fields: object) -> str:
    """Return the sentence for ``count``, which is a field of both."""
    return sentence(singular if count == 1 else plural, count=count, **fields)


def joined(text: str, parts: Iterable[str], /) -> str:
    """Return ``parts`` as a sentence, joined by ``text`` with its ``{before}`` and ``{part}``.

    Parts are names or sentences; a single one comes back as it is. Neighbours are joined in pairs,
    so a thousand parts are ten sentences deep. Raises ``IndexError`` without parts.
    """
    texts = list(parts)
    while len(texts) > 1:
        odd = texts[len(texts) // 2 * 2 :]
        pairs = zip(texts[::2], texts[1::2], strict=False)
        texts = [sentence(text, before=before, part=part) for before, part in pairs] + odd
    return texts[0]


def names_in_short(names: Sequence[str], limit: int = 5) -> str:
    """Return the first ``limit`` names as a sentence, with how many it lacks.

    Raises ``IndexError`` without names.
    """
    first = joined("{before}, {part}", names[:limit])
    more = len(names) - limit
    return sentence("{names} and {count} more", names=first, count=more) if more > 0 else first


def english(value: object) -> str:
    """Return a sentence as plain text: the ``enc_hook`` with which msgspec encodes reports.

    Raises ``NotImplementedError`` for what is no sentence, so that no JSON has it by mistake.
    """
    if isinstance(value, Sentence):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} is no type of JSON")


def message(text: str) -> str:
    """Return ``text``, which belongs to the catalogue and is translated where it is printed."""
    return text
