"""Fault configurations in files, as people give them on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from contract.errors import ConfigurationError, Problem
from contract.fault_configuration import (
    DOCUMENTS,
    POLL_INTERVAL_KEY,
    FaultProblem,
    FaultTexts,
    InForce,
    judge_texts,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_KNOWN = ", ".join(DOCUMENTS)


class _ConfigMap(msgspec.Struct):
    kind: str
    data: dict[str, str] = {}


def read_fault_files(paths: Iterable[Path]) -> tuple[FaultTexts, tuple[FaultProblem, ...]]:
    """The documents in ``paths`` (files, directories, ConfigMaps), and what is skipped of them.

    Raises ``ConfigurationError`` for what cannot be read, is no document, or is given twice.
    """
    files: dict[str, str] = {}
    for path in paths:
        found = _documents(path)
        twice = [name for name in found if name in files]
        if twice:
            problem = Problem(str(path), f"{', '.join(twice)}: given twice")
            raise ConfigurationError("--fault-config", [problem])
        files |= found
    judged = judge_texts({}, files, InForce())
    if judged.kept:
        raise ConfigurationError(
            "--fault-config",
            [
                Problem(f"{one.document} {one.problem.where}", one.problem.what)
                for one in judged.problems
                if one.document in judged.kept
            ],
        )
    return judged.in_force.texts, judged.problems


def _documents(path: Path) -> dict[str, str]:
    if path.is_dir():
        found = {name: _read(path / name) for name in DOCUMENTS if (path / name).is_file()}
        if not found:
            raise _refused(path, f"has none of {_KNOWN}")
        return found
    if path.name in DOCUMENTS:
        return {path.name: _read(path)}
    import yaml

    try:
        config_map = msgspec.convert(yaml.safe_load(_read(path)), _ConfigMap)
    except (yaml.YAMLError, msgspec.ValidationError, RecursionError, ValueError):
        config_map = _ConfigMap("")
    found = {key: text for key, text in config_map.data.items() if key != POLL_INTERVAL_KEY}
    if config_map.kind != "ConfigMap" or not found:
        raise _refused(path, f"is none of {_KNOWN} by its name, and no ConfigMap with them")
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise _refused(path, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise _refused(path, f"is not UTF-8 text: {error.reason}") from None


def _refused(path: Path, what: str) -> ConfigurationError:
    return ConfigurationError("--fault-config", [Problem(str(path), what)])
