"""Reads fault configurations from files of the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.errors import ConfigurationError, Problem
from contract.operator_rules.fault_configuration import (
    DOCUMENTS,
    FaultTexts,
    InForce,
    catalogue_of,
    judge_texts,
)
from vigil.file_checks import DOCUMENT_OF_KIND, kind_of, read_config_map, read_text

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from contract.operator_rules.fault_configuration import FaultProblem


def read_fault_files(paths: Iterable[Path]) -> tuple[FaultTexts, tuple[FaultProblem, ...]]:
    """Return the documents in ``paths`` (files, directories, ConfigMaps), and what is skipped.

    Raises ``ConfigurationError`` for what cannot be read, is not a document, or is given twice.
    """
    data: dict[str, str] = {}
    for path in paths:
        result = _documents(path)
        twice = [key for key in result if key in data]
        if twice:
            raise ConfigurationError(str(path), [Problem(key, "is given twice") for key in twice])
        data |= result
    problems: list[Problem] = []
    # Each by itself, so that the problems of all are reported together.
    for key, member in DOCUMENTS.items():
        try:
            catalogue_of(FaultTexts(**{member: data.get(key)}))
        except ConfigurationError as error:
            problems += (
                Problem(f"{key} {problem.where}", problem.what) for problem in error.problems
            )
    if problems:
        raise ConfigurationError("--fault-config", problems)
    judged = judge_texts(data, {}, InForce())
    return judged.in_force.texts, judged.problems


def _documents(path: Path) -> dict[str, str]:
    source = str(path)
    if path.is_dir():
        names = [name for name in DOCUMENTS if (path / name).exists()]
        if not names:
            problem = Problem("(directory)", f"has none of {', '.join(DOCUMENTS)}")
            raise ConfigurationError(source, [problem])
        return {name: read_text(path / name, str(path / name)) for name in names}
    text = read_text(path, source)
    kind = kind_of(text, path.name, source)
    if kind == "fault-config":
        return read_config_map(text, source)
    if kind not in DOCUMENT_OF_KIND:
        raise ConfigurationError(source, [Problem("(file)", "is not a valid fault configuration")])
    return {DOCUMENT_OF_KIND[kind]: text}
