"""``vigil validate``: check a file before it is used."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path  # noqa: TC003  (typer reads it)
from typing import Annotated

import typer

_NO_RULE = ("TEMPLATE", "UNKNOWN_KIND", "UNKNOWN_VERSION")
"""Findings about a text in which no scaling rule was judged."""


class FileKind(StrEnum):
    """What a file may be."""

    AGENT = "agent"
    AGGREGATOR = "aggregator"
    SCENARIO = "scenario"
    FAULT_CODE = "fault-code"
    FAULT_CUSTOMIZATION = "fault-customization"
    SWITCH_FAULT_CODE = "switch-fault-code"
    NODE_FAULT_CODE = "node-fault-code"
    FAULT_CONFIG = "fault-config"
    PUBLIC_FAULT_CODES = "public-fault-codes"
    SCALING_RULE = "scaling-rule"
    FAULT_DURATION = "fault-duration"
    RELATION_FAULTS = "relation-faults"


def validate(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE|-", help="What to check; - is standard input."),
    ],
    kind: Annotated[
        FileKind | None, typer.Option(help="What it is; default: by its name and content.")
    ] = None,
) -> None:
    """Check a configuration, a scenario, a fault configuration (a document or a ConfigMap) or a
    scaling rule.

    Shows all problems at once. Exit status 2 if there are any.
    """
    from contract.errors import ConfigurationError
    from contract.sentences import sentence
    from vigil.file_checks import NOT_JUDGED, kind_of, read_text
    from vigil.language import shown, translated

    source = "standard input" if str(file) == "-" else str(file)
    text = read_text(file, source)
    chosen = FileKind(kind_of(text, file.name, source)) if kind is None else kind
    try:
        _check(chosen, text, source)
    except ConfigurationError:
        # The kind may have been guessed wrongly.
        text = translated("{file}: checked as {kind}", file=source, kind=chosen)
        typer.echo(text, err=True)
        raise
    if chosen in NOT_JUDGED:
        text = sentence(
            "{file}: not judged ({kind}): {reason}",
            file=source,
            kind=chosen,
            reason=NOT_JUDGED[chosen],
        )
        print(shown(text))
    else:
        print(translated("{file}: ok ({kind})", file=source, kind=chosen))


def _check(kind: FileKind, text: str, source: str) -> None:
    """Check a text of a kind. Raises ``ConfigurationError``."""
    from service.configuration import parse_toml
    from vigil.file_checks import (
        DOCUMENT_OF_KIND,
        check_config_map,
        check_document,
        check_form,
        check_public_fault_codes,
    )

    match kind:
        case FileKind.FAULT_CONFIG:
            check_config_map(text, source)
        case FileKind.SCENARIO:
            from dcmi_shim.emulator.scenario import parse_scenario

            parse_scenario(text, source)
        case FileKind.AGENT:
            from agent.config import check_agent

            check_agent(parse_toml(text, source), source)
        case FileKind.AGGREGATOR:
            from aggregator.config import check_aggregator

            check_aggregator(parse_toml(text, source), source)
        case FileKind.PUBLIC_FAULT_CODES:
            check_public_fault_codes(text, source)
        case FileKind.SCALING_RULE:
            _check_scaling_rule(text, source)
        case FileKind.FAULT_DURATION | FileKind.RELATION_FAULTS:
            check_form(text, source)
        case _:
            check_document(DOCUMENT_OF_KIND[kind], text, source)


def _check_scaling_rule(text: str, source: str) -> None:
    """Check a scaling rule, alone or in its ConfigMap, as ``vigil lint`` does; show its warnings.

    Raises ``ConfigurationError``.
    """
    from advisor.findings import FindingSeverity
    from contract.errors import ConfigurationError, Problem
    from contract.sentences import sentence
    from vigil.file_checks import SCALING_RULE
    from vigil.language import shown
    from vigil.lint.reading import File, with_lines
    from vigil.lint.run import lint

    findings = lint([File(source, with_lines(text))]).findings
    problems = [
        Problem(
            sentence("line {numbers}", numbers=finding.place.line),
            sentence(
                "{code}: {happens} {write}",
                code=finding.rule.code,
                happens=finding.happens,
                write=finding.write,
            ),
        )
        for finding in findings
        if finding.rule.severity is FindingSeverity.ERROR or finding.rule.code in _NO_RULE
    ]
    # With --kind any text comes here, and the lint finds nothing wrong in other manifests.
    if not problems and SCALING_RULE.search(text) is None:
        text = sentence("has no elastic_scaling_list and no elastic_scaling.json")
        problems = [Problem("(file)", text)]
    if problems:
        raise ConfigurationError(source, problems)
    for finding in findings:
        if finding.rule.severity is FindingSeverity.WARNING:
            warning = sentence(
                "{file}: warning: line {line}: {code}: {happens} {write}",
                file=source,
                line=finding.place.line,
                code=finding.rule.code,
                happens=finding.happens,
                write=finding.write,
            )
            typer.echo(shown(warning), err=True)
