"""Merges the layers of a configuration into one validated model, and reports all problems at once.

Command line beats environment beats file. A model is a ``Section``; its fields may be sections.
Option ``state_dir`` is ``state_dir`` in the file, ``VIGIL_STATE_DIR`` in the environment and
``--state-dir`` on the command line; ``chip_faults.audit_period_seconds`` is a table and a key in
the file and ``VIGIL_CHIP_FAULTS_AUDIT_PERIOD_SECONDS`` in the environment.
"""

from __future__ import annotations

import copy
import errno
import json
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin

import msgspec

from contract.errors import ConfigurationError, Problem
from contract.record import Record
from contract.settings import Section
from contract.toml_text import toml_content
from service.setting_values import WrongValue, fields_of, read_section, read_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


ENVIRONMENT_PREFIX = "VIGIL_"

_Path = tuple[str, ...]

M = TypeVar("M", bound=Section)


class _LeafSetting(Record, frozen=True):
    """One leaf of the model."""

    path: _Path
    annotation: Any

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + "_".join(self.path).upper()

    @property
    def flag(self) -> str:
        return "--" + "-".join(self.path).replace("_", "-")


def parse_toml(text: str, source: str) -> dict[str, object]:
    """Parse the text of a TOML file. Raises ``ConfigurationError``."""
    try:
        return toml_content(text)
    except ValueError as error:
        raise ConfigurationError(source, [Problem("(file)", str(error))]) from None


def read_toml(path: Path) -> dict[str, object]:
    """Read a TOML file. Raises ``ConfigurationError``."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        # A pipe is allowed: a shell may write one. A socket cannot be opened.
        is_socket = error.errno == errno.ENXIO
        problem = f"cannot be read: {'it is a socket' if is_socket else error.strerror}"
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8 text: {error.reason}"
    else:
        return parse_toml(text, str(path))
    raise ConfigurationError(str(path), [Problem("(file)", problem)])


def load_daemon(
    model: type[M],
    file: Path | None,
    environment: Mapping[str, str],
    command_line: Mapping[str, object],
    verb: str,
) -> M:
    """Read ``file`` and merge the layers of the daemon ``verb``; see ``load``."""
    return load(
        model,
        file=None if file is None else read_toml(file),
        environment=environment,
        command_line=command_line,
        source=f"vigil {verb}" if file is None else str(file),
    )


def load(
    model: type[M],
    *,
    file: Mapping[str, object] | None,
    environment: Mapping[str, str],
    command_line: Mapping[str, object],
    source: str,
) -> M:
    """Merge the layers and validate the result.

    ``environment`` is the whole environment; variables that are not an option of ``model`` are left
    alone. ``command_line`` maps option paths (``state_dir``, ``chip_faults.audit_period_seconds``)
    to values; ``None`` means not given. Text from environment and command line is read as the
    option's type, lists are separated by commas, a table is ``KEY=VALUE VALUE,KEY=VALUE``.
    ``source`` names the whole in the error.

    Raises ``ConfigurationError`` with every problem; ``where`` names the layer a value came from.
    """
    options = {option.path: option for option in _options(model, ())}
    merged = copy.deepcopy(dict(file or {}))
    origins: dict[_Path, str] = {}
    problems: list[Problem] = []

    def override(option: _LeafSetting, value: object, where: str) -> None:
        refused: list[WrongValue] = []
        converted = _converted(option.annotation, value, refused)
        if refused:
            problems.extend(Problem(where, _problem_text(item)) for item in refused)
            _without(merged, option.path)
        elif _place(merged, option.path, converted):
            origins[option.path] = where

    for option in options.values():
        if option.variable in environment:
            override(option, environment[option.variable], option.variable)
    for name, value in command_line.items():
        if value is not None:
            option = options[tuple(name.split("."))]
            override(option, value, option.flag)
    wrong_overrides = {problem.where for problem in problems}
    refused: list[WrongValue] = []
    section = read_section(model, json.loads(json.dumps(merged, default=str)), refused)
    for item in refused:
        missing = options.get(tuple(str(part) for part in item.place))
        if missing is None or not wrong_overrides & {missing.variable, missing.flag}:
            problems.append(_problem(item, options, origins))
    if problems:
        raise ConfigurationError(source, problems)
    assert isinstance(section, model)
    return section


def _options(model: type[Section], above: _Path) -> Iterator[_LeafSetting]:
    for field in fields_of(model):
        if isinstance(field.type, type) and issubclass(field.type, Section):
            yield from _options(field.type, (*above, field.name))
        else:
            yield _LeafSetting((*above, field.name), field.type)


def _place(table: dict[str, object], path: _Path, value: object) -> bool:
    """Put ``value`` at ``path``; ``False`` where the file has something that is not a table."""
    for part in path[:-1]:
        below = table.setdefault(part, {})
        if not isinstance(below, dict):
            return False
        table = below
    table[path[-1]] = value
    return True


def _without(table: dict[str, object], path: _Path) -> None:
    for part in path[:-1]:
        below = table.get(part)
        if not isinstance(below, dict):
            return
        table = below
    table.pop(path[-1], None)


def _converted(annotation: Any, value: object, refused: list[WrongValue]) -> object:
    """Return ``value`` of the environment or the command line as a value of the file.

    What is wrong is added to ``refused``.
    """
    # Limits are checked with the whole, as for a value of the file.
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if isinstance(value, str) and get_origin(annotation) is tuple:
        value = [part.strip() for part in value.split(",")] if value else []
    if isinstance(value, str) and get_origin(annotation) is dict:
        pairs = (part.strip().partition("=") for part in value.split(",") if part.strip())
        has_lists = get_origin(get_args(annotation)[1]) is tuple
        # A part without a sign has no value that is valid, so it is refused.
        value = {
            key.strip(): (rest.split() if has_lists else rest.strip()) if sign else None
            for key, sign, rest in pairs
        }
    converted = read_value(annotation, msgspec.to_builtins(value, enc_hook=str), refused)
    return None if refused else msgspec.to_builtins(converted, enc_hook=str)


def _problem(
    item: WrongValue, options: Mapping[_Path, _LeafSetting], origins: Mapping[_Path, str]
) -> Problem:
    where = ""
    names: list[str] = []
    for part in item.place:
        if isinstance(part, int):
            where += f"[{part}]"
        else:
            where += f".{part}" if where else part
            names.append(part)
    path = tuple(names)
    if item.kind == "missing" and path in options:
        option = options[path]
        return Problem(
            where, f"is missing; give it in the file, {option.variable} or {option.flag}"
        )
    if item.kind == "unknown":
        valid = sorted(
            {candidate[len(path) - 1] for candidate in options if _beside(candidate, path)}
        )
        near = get_close_matches(path[-1], valid, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(valid)}"
        return Problem(where, f"is not a valid option; {hint}")
    for length in range(len(path), 0, -1):
        if path[:length] in origins:
            where = origins[path[:length]]
            break
    return Problem(where or "(all)", _problem_text(item))


def _beside(candidate: _Path, path: _Path) -> bool:
    return len(candidate) >= len(path) and candidate[: len(path) - 1] == path[:-1]


def _problem_text(item: WrongValue) -> str:
    given = item.given
    is_shown = isinstance(given, (str, int, float, bool)) or given is None
    return f"{item.text}; given {given!r}" if is_shown else item.text
