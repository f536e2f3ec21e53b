"""The sentences of a page, from which a verb makes them in its own language.

A page has English texts. Its ``messages`` have the id of those that a catalogue may have, and their
parameters. A reader that does not know the id shows the English text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from contract.sentences import Sentence, english

if TYPE_CHECKING:
    from collections.abc import Callable


class PageMessage(msgspec.Struct, frozen=True):
    """A sentence of a page.

    ``id`` is its English text with named ``{fields}``, as in a catalogue of gettext.
    ``parameters`` are their values: names, numbers and sentences.
    """

    id: str
    parameters: dict[str, Parameter] = {}


Parameter: TypeAlias = "str | int | float | PageMessage"


def collecting(messages: dict[str, PageMessage]) -> Callable[[object], str]:
    """Return the ``enc_hook`` that encodes a page and adds its sentences to ``messages``.

    The encoder calls it for each sentence, wherever that is. So ``messages`` may be those of the
    page itself, where they are its last member: they are complete when they are encoded.
    """

    def collect(value: object) -> str:
        text = english(value)
        if isinstance(value, Sentence) and text not in messages:
            messages[text] = _message(value)
        return text

    return collect


def _message(sentence: Sentence) -> PageMessage:
    return PageMessage(
        sentence.template,
        {name: _parameter(value) for name, value in sentence.fields.items()},
    )


def _parameter(value: object) -> Parameter:
    if isinstance(value, Sentence):
        return _message(value)
    return value if isinstance(value, (int, float)) else str(value)
