"""The commands in the documents: where they run, or why they do not.

::

    python -m tests.documented_commands

counts them. A block of commands is marked ``sh``, or ``console`` with what they print. A comment
``<!-- not run: REASON -->`` before a block states why no test runs it. Chinese documents have the
blocks of their sources (``tests/test_translations.py``).
"""

from __future__ import annotations

import re
import shlex
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from tests.parts.tree import ROOT, files

if TYPE_CHECKING:
    from collections.abc import Iterator

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^(#+) (.*)$", re.MULTILINE)
_REASON = re.compile(r"<!-- not run: ((?:(?!-->).)+?) -->\n+\Z", re.DOTALL)
_INLINE = re.compile(r"`((?:vigil|make|python -m) [^`]+)`")
_PROMPT = re.compile(r"^(?:[\w-]+)?\$ ")
_SEPARATORS = frozenset(("&&", "||", "|", "&", ";"))
_KEYWORDS = frozenset(("do", "done", "then", "fi", "until", "while", "if", "!"))
PARSED = frozenset(("vigil", "make", "python", "helm", "kubectl"))
"""Programs whose commands are parsed: the last two by ``make test`` and ``make test-node``."""

TESTS = {
    ("README.md", "On a laptop"): "tests/end_to_end/test_readme.py",
    ("docs/operate.md", ""): "tests/end_to_end/test_operate_document.py",
    ("docs/installation.md", "On a server without Kubernetes"): "tests/packaging/test_guide.py",
    ("docs/release.md", "Keys"): "tests/release/test_manifest.py",
}
"""What runs all blocks of a document below a heading, or all of a document."""

VERBS_THAT_RUN = frozenset(
    (
        *("advise", "emulator", "explain", "faults", "forget", "isolate", "jobs", "lint", "prove"),
        *("release", "replay", "scan", "simulate", "status", "support", "timeline", "validate"),
    )
)
"""Verbs that ``tests/end_to_end/test_commands_of_documents.py`` runs, on a node with a fault."""
_NOT_HERE = frozenset(
    (
        *(("curl", "-N"), ("emulator", "install"), ("lint", "-"), ("lint", "--live")),
        *(("prove", "--agents"), ("prove", "b"), ("release", "--taint")),
        *(("support", "--kubeconfig"), ("validate", "-")),
    )
)
"""Verb or program, and a word of a command that needs a cluster, other nodes, input, or a compiler,
or does not end.
"""
_PROGRAMS_THAT_RUN = (
    *("systemd/make-certificates", "daemonset/push-image"),
    *("curl", "hccn_tool", "openssl"),
)


@dataclass(frozen=True)
class Block:
    """A block of a document, between its fences."""

    document: str
    line: int
    headings: tuple[str, ...]
    language: str
    text: str
    reason: str | None

    @property
    def place(self) -> str:
        """Return document and line."""
        return f"{self.document}:{self.line}"

    @property
    def test(self) -> str | None:
        """Return the test that runs the whole block."""
        for heading in ("", *self.headings):
            if (self.document, heading) in TESTS:
                return TESTS[self.document, heading]
        return None

    def commands(self) -> list[tuple[str, ...]]:
        """Return the words of each command: of each line, and between ``|``, ``&&`` and so on."""
        lines = self.text.replace("\\\n", " ").splitlines()
        if self.language == "console":
            lines = [_PROMPT.sub("", line) for line in lines if _PROMPT.match(line)]
        return [command for line in lines for command in split(line)]


def split(line: str) -> list[tuple[str, ...]]:
    """Return the words of each command of a line of a shell, without redirections and comments."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    commands: list[list[str]] = [[]]
    for word in lexer:
        if word in _SEPARATORS:
            commands.append([])
        elif commands[-1] or word not in _KEYWORDS:
            commands[-1].append(word)
    return [_without_folder(command) for command in commands if command]


def _without_folder(command: list[str]) -> tuple[str, ...]:
    """Return a command whose program has no folder if it is of this repository's environment."""
    name = command[0].removeprefix(".venv/bin/")
    redirected = next((n for n, word in enumerate(command) if word in (">", ">>", "<")), None)
    return (name, *command[1:redirected])


def documents() -> list[str]:
    """Return the documents whose commands count."""
    return [name for name in files("*.md") if not name.endswith(".zh-CN.md")]


@cache
def blocks() -> tuple[Block, ...]:
    """Return all blocks of all documents."""
    return tuple(
        block
        for name in documents()
        for block in blocks_of(name, (ROOT / name).read_text(encoding="utf-8"))
    )


def blocks_of(name: str, text: str) -> Iterator[Block]:
    """Yield the blocks of the document ``name``, which has ``text``."""
    hidden = _FENCE.sub(lambda block: "x" * len(block[0]), text)
    heads = [(head.start(), len(head[1]), head[2]) for head in _HEADING.finditer(hidden)]
    for match in _FENCE.finditer(text):
        above: dict[int, str] = {}
        for start, level, head in heads:
            if start < match.start():
                above = {k: v for k, v in above.items() if k < level} | {level: head}
        reason = _REASON.search(text[: match.start()])
        line = text.count("\n", 0, match.start()) + 1
        language, content = match.groups()
        yield Block(
            name, line, tuple(above.values()), language, content, reason[1] if reason else None
        )


def blocks_of_commands() -> list[Block]:
    """Return the blocks that a reader types into a shell."""
    return [block for block in blocks() if block.language in ("sh", "console")]


def inline() -> Iterator[tuple[str, str]]:
    """Yield the commands inside of sentences, with their documents."""
    for name in documents():
        text = _FENCE.sub("", (ROOT / name).read_text(encoding="utf-8"))
        for command in _INLINE.findall(text):
            yield name, command


def runs(command: tuple[str, ...]) -> bool:
    """Return whether the test of single commands runs it: it needs no cluster."""
    program, *words = command
    verb = words[0] if program == "vigil" and words else program
    return not any((verb, word) in _NOT_HERE for word in words) and (
        program in _PROGRAMS_THAT_RUN or (program == "vigil" and verb in VERBS_THAT_RUN)
    )


def counted() -> tuple[Counter[str], list[str]]:
    """Return how many commands are run, parsed or not run with a reason, and the others."""
    counts: Counter[str] = Counter()
    others: list[str] = []
    for block in blocks_of_commands():
        for command in block.commands():
            if block.test or runs(command):
                counts["run"] += 1
            elif command[0] in PARSED:
                counts["parsed"] += 1
            elif block.reason:
                counts["not run, with a reason"] += 1
            else:
                others.append(f"{block.place}: {shlex.join(command)}")
    return counts, others


if __name__ == "__main__":
    numbers, left = counted()
    numbers["without a reason"] = len(left)
    sys.stdout.writelines(f"{count:5} {name}\n" for name, count in numbers.items())
    sys.stdout.writelines(f"{command}\n" for command in left)
