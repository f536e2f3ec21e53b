"""Judges the files of a call as one set, and leaves out findings that a comment silences.

Each file is read by itself, and what concerns several objects is collected from all of them. Rules
about the whole set are applied to that at the end. Findings come in the order of files and lines,
each of them once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from advisor.findings import FindingSeverity
from advisor.lint import scaling_rule
from advisor.lint.finding import FindingPlace, defect, finding, in_words
from advisor.lint.judge import judge
from advisor.lint.model import Mapping, Scalar
from advisor.lint.objects import Texts, is_manifest, object_at, take
from advisor.lint.workload import Collected, ElasticDaemon
from contract.sentences import counted, sentence
from vigil.lint.documents import TooMuch, UnparsedText, Unreadable
from vigil.lint.json_text import NoJson, is_long_list, json_value, read_json
from vigil.lint.reading import STANDARD_INPUT
from vigil.lint.yaml_nodes import ACTION
from vigil.lint.yaml_text import read_yaml

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from advisor.lint.finding import LintFinding
    from advisor.lint.model import Node
    from vigil.lint.documents import ManifestDocument
    from vigil.lint.reading import File

_IGNORE = re.compile(r"#[ \t]*vigil:[ \t]*ignore[ \t]+([A-Z][A-Z0-9_]*)[ \t]+\S")
_BARE_RULE = re.compile(rf'"{scaling_rule.LIST}"\s*:')
_NOT_READ = ("UNREADABLE", "NOT_JUDGED")
_ABSENT = frozenset(
    (
        "UNKNOWN_KIND",
        "UNKNOWN_VERSION",
        "DEPLOY_TOOL_REFUSES",
        "SCALING_RULE_EMPTY",
        "SCALING_RULE_GROUP_MISSING",
        "SCALING_RULE_NO_NUMBER",
    )
)
"""What may be found only because a page does not show the rest."""
_SHOWN_LINES = 20
_COMMENT = re.compile(r"""("(?:[^"\\\n]|\\.)*")|((?:\#|//)[^\n]*|/\*.*?\*/)""", re.DOTALL)


@dataclass
class LintReport:
    """What was found in one call. ``silenced``: how many findings a comment took away."""

    findings: list[LintFinding] = field(default_factory=list)
    silenced: int = 0
    files: int = 0
    not_judged: dict[str, int] = field(default_factory=dict)
    passed_over: int = 0
    """How many documents of directories are not manifests."""
    not_known: list[str] = field(default_factory=list)
    """What of a cluster could not be read, and why."""

    def counts(self) -> dict[FindingSeverity, int]:
        """Return how many findings of each severity there are."""
        findings = [finding.rule.severity for finding in self.findings]
        return {severity: findings.count(severity) for severity in FindingSeverity}

    def exit_status(self, *, strict: bool) -> int:
        """Return 2 where a file could not be read, 1 with an error, with ``strict`` a warning too.

        What is an ``info`` may be right as it stands, so it never counts.
        """
        if any(finding.rule.code in _NOT_READ for finding in self.findings):
            return 2
        counts = self.counts()
        return int(counts[FindingSeverity.ERROR] + strict * counts[FindingSeverity.WARNING] > 0)


def lint(
    files: Iterable[File], decided: Iterable[LintFinding] = (), *, is_cluster: bool = False
) -> LintReport:
    """Judge ``files`` as one set. Findings are in the order of files and lines.

    ``decided`` is what was found about a running cluster, in files of its own. ``is_cluster``: all
    Deployments of that cluster are among the files.
    """
    report = LintReport()
    collected = Collected(elastic=ElasticDaemon(is_cluster=is_cluster))
    order: dict[str, int] = {}
    ignored: dict[str, dict[int, set[str]]] = {}
    live = set()
    findings: list[LintFinding] = []
    for file in files:
        order.setdefault(file.name, len(order))
        if file.is_live:
            live.add(file.name)
        else:
            report.files += 1
        # Most files have no such comment, and a search for the word is quicker than the pattern.
        if "vigil:" in file.text:
            ignored[file.name] = _ignored(file.text)
        if file.unreadable is not None:
            findings.append(_unreadable(file.unreadable, file.name))
            continue
        try:
            findings += _read_one(file, collected, report)
        except Exception as error:  # a defect here may not hide what is found in other files
            findings.append(defect(error, FindingPlace(file.name, 1, "")))
    findings += judge(collected)
    for item in decided:
        order.setdefault(item.place.file, len(order))
        findings.append(item)
    report.not_judged = dict(sorted(collected.not_judged.items()))
    # What two rules find at one place with one text is one finding.
    unique = dict.fromkeys(_named(item, live) for item in findings)
    for item in sorted(unique, key=lambda item: _key(item, order)):
        codes = ignored.get(item.place.file, {}).get(item.place.line, ())
        # A file that could not be read cannot be silenced: its comment was not read either.
        if item.rule.code in codes and item.rule.code not in _NOT_READ:
            report.silenced += 1
        else:
            report.findings.append(item)
    return report


def _named(finding: LintFinding, live: Container[str]) -> LintFinding:
    """Return a finding that names an object, or else its file. Lines of ``live`` are not known."""
    if not finding.place.object:
        finding = finding._replace(place=finding.place._replace(object=finding.place.file))
    return finding.without_line() if finding.place.file in live else finding


def _key(finding: LintFinding, order: dict[str, int]) -> tuple[object, ...]:
    place = finding.place
    return (order[place.file], place.line, finding.rule.code, place.object, finding.happens)


def _ignored(text: str) -> dict[int, set[str]]:
    """Return the codes that a comment with a reason silences, by line."""
    ignored: dict[int, set[str]] = {}
    for findings in _IGNORE.finditer(text):
        ignored.setdefault(1 + text.count("\n", 0, findings.start()), set()).add(findings[1])
    return ignored


def _unreadable(unreadable: Unreadable, file: str) -> LintFinding:
    return finding("UNREADABLE", FindingPlace(file, unreadable.line, ""), why=unreadable.why)


def _read_one(file: File, collected: Collected, report: LintReport) -> Iterator[LintFinding]:
    # A scaling rule outside of its ConfigMap, as the vendor's documents show it.
    if file.text.lstrip()[:1] == "{" and _BARE_RULE.search(file.text):
        whole = Scalar(file.text, 0, is_quoted=True, is_block=True)
        rule, findings = _rule(whole, FindingPlace(file.name, 1, ""))
        yield from findings
        if rule is not None:
            yield from take(rule, file.name, collected, _TEXTS)
        return
    text = UnparsedText()
    for document in _documents(file, text):
        root = document.root
        place = FindingPlace(file.name, document.line, object_at(root, document.line))
        if document.is_template:
            yield finding("TEMPLATE", place)
            continue
        if not file.is_named and not is_manifest(root):
            report.passed_over += 1
            continue
        yield from _repeated(document, place)
        try:
            if document.is_partial:
                yield from _judge_partial(root, file.name)
            elif isinstance(root, Mapping):
                yield from take(root, file.name, collected, _TEXTS)
            else:
                yield finding("UNKNOWN_KIND", place, kind=sentence("(no object)"))
        except TooMuch as error:
            yield finding("UNREADABLE", place, why=error)
    yield from _judge_text(file, text, report)


def _judge_text(file: File, text: UnparsedText, report: LintReport) -> Iterator[LintFinding]:
    """Return what is wrong with the text of a file."""
    for line in text.templates:
        yield finding("TEMPLATE", FindingPlace(file.name, line, ""))
    if file.is_named:
        text.unreadable += text.no_manifests
    else:
        report.passed_over += bool(text.no_manifests)
    for item in text.unreadable:
        yield _unreadable(item, file.name)
    if text.left_out:
        yield _left_out(text, file.name)
    if file.is_named and not file.text.strip():
        yield finding("UNREADABLE", FindingPlace(file.name, 1, ""), why=sentence("is empty"))


def _judge_partial(root: Node, file: str) -> Iterator[LintFinding]:
    """Judge what a page shows of a manifest, of which anything may be missing."""
    if isinstance(root, Mapping):
        shown = take(root, file, Collected(), _TEXTS)
        yield from (item for item in shown if item.rule.code not in _ABSENT)


def _left_out(text: UnparsedText, file: str) -> LintFinding:
    """Return the one finding about lines that are not YAML.

    Of standard input, which a tool wrote, it is a warning: the rest is what the user asks about.
    """
    lines = sorted(text.left_out)
    shown = in_words(map(str, lines[:_SHOWN_LINES]))
    if len(lines) > _SHOWN_LINES:
        more = len(lines) - _SHOWN_LINES
        shown = sentence("{numbers} and {count} more", numbers=shown, count=more)
    shown = counted(len(lines), "line {numbers}", "lines {numbers}", numbers=shown)
    place = FindingPlace(file, lines[0], "")
    if file != STANDARD_INPUT:
        reason = sentence(
            "what is in {shown} is not YAML of a manifest; the rest is judged", shown=shown
        )
        return finding("UNREADABLE", place, why=reason)
    return finding("NOT_YAML", place, lines=shown)


def _documents(file: File, into: UnparsedText) -> Iterator[ManifestDocument]:
    """Return the documents of a JSON file, or of a YAML file, which may begin like one."""
    begin = file.text.lstrip()[:2]
    if is_long_list(file.text):
        yield from read_json(file.text, into)
    elif begin[:1] in ("{", "[") and not ACTION.match(begin):
        # JSON first, then YAML: a flow mapping of YAML begins like JSON.
        as_json = UnparsedText()
        documents = [*read_json(file.text, as_json)]
        if not as_json.unreadable:
            yield from documents
            return
        as_yaml = UnparsedText()
        # A file that is named JSON gets JSON's error, not YAML's.
        if not file.name.endswith(".json"):
            documents = [*read_yaml(file.text, as_yaml)]
            if not as_yaml.unreadable:
                into.templates += as_yaml.templates
                yield from documents
                return
        action = ACTION.search(file.text)
        if action is not None and file.name.endswith(".json"):
            into.templates.append(1 + file.text.count("\n", 0, action.start()))
        else:
            into.unreadable += as_json.unreadable
    else:
        yield from read_yaml(file.text, into)


def _repeated(document: ManifestDocument, place: FindingPlace) -> Iterator[LintFinding]:
    for item in document.repeated:
        code = "REPEATED_KEY" if item.is_same else "DUPLICATE_KEY"
        name = object_at(document.root, item.line) or place.object
        here = FindingPlace(place.file, item.line, name)
        yield finding(code, here, key=item.key, first=item.first_line)


def _rule(text: Scalar, place: FindingPlace) -> tuple[Mapping | None, list[LintFinding]]:
    """Return the scaling rule in a ConfigMap without its comments."""
    # The text of a block begins one line below its key.
    offset = text.line if text.is_block else text.line - 1
    findings = []
    content = text.text
    comment = next((item for item in _COMMENT.finditer(content) if item[2]), None)
    if comment is not None:
        line = offset + 1 + content.count("\n", 0, comment.start())
        reason = sentence("has a comment, which JSON does not know")
        findings.append(finding("SCALING_RULE_NO_JSON", place.at(line), why=reason))
        # Taken out, so that the rest of the rule is judged as well.
        content = _COMMENT.sub(_without, content)
    try:
        document = json_value(content, offset)
    except NoJson as error:
        findings.append(finding("SCALING_RULE_NO_JSON", place.at(error.line), why=error.why))
        return None, findings
    findings += _repeated(document, place)
    return (document.root if isinstance(document.root, Mapping) else None), findings


def _without(match: re.Match[str]) -> str:
    # Lines of a comment stay as empty lines, so that later lines keep their numbers.
    return match[1] or "\n" * match[2].count("\n")


def _configuration(text: Scalar, place: FindingPlace) -> tuple[Mapping | None, list[LintFinding]]:
    """Return the configuration of the scheduler in its ConfigMap."""
    into = UnparsedText()
    documents = [*read_yaml(text.text, into, text.line if text.is_block else text.line - 1)]
    findings = []
    for line in into.left_out:
        into.unreadable.append(Unreadable(line, "is not YAML"))
    into.unreadable += into.no_manifests
    for item in into.unreadable:
        reason = sentence("the scheduler does not read it: {why}", why=item.why)
        words = {
            "key": "volcano-scheduler.conf",
            "why": reason,
            "instead": sentence("Correct the YAML."),
        }
        findings.append(finding("SCHEDULER_CONFIGURATION", place.at(item.line), **words))
    for document in documents:
        findings += _repeated(document, place)
    root = documents[0].root if documents else None
    return (root if isinstance(root, Mapping) else None), findings


_TEXTS = Texts(_rule, _configuration)
