"""Recognises the kind of a file; checks and reads fault configurations."""

from __future__ import annotations

import codecs
import json
import re
import sys
from typing import TYPE_CHECKING, Any

from agent.config import AgentConfiguration
from aggregator.config import AggregatorConfiguration
from contract.errors import ConfigurationError, DocumentError, Problem, quoted
from contract.go.decode import folded
from contract.operator_rules.fault_configuration import (
    CHIP_CONFIG_MAP,
    CONFIG_MAPS,
    DOCUMENTS,
    FAULT_CONFIG_NAME,
    NODE_CONFIG_MAP,
    NODE_FAULT_CONFIG_NAME,
    FaultTexts,
    InForce,
    catalogue_of,
    judge,
    judge_texts,
)
from contract.operator_rules.public_fault_table import read_public_fault_table
from contract.sentences import sentence
from service.configuration import parse_toml

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from contract.operator_rules.fault_configuration import FaultProblem, OperatorConfigMap

DOCUMENT_OF_KIND = dict(
    zip(
        ("fault-code", "fault-customization", "switch-fault-code", "node-fault-code"),
        DOCUMENTS,
        strict=True,
    )
)
"""The key of a document of the fault configuration, by the word of ``FileKind``."""

# Longer names come first: ``faultcode`` is a part of others.
_NAMES = {  # the first that a name contains
    "publicfaultconfiguration": "public-fault-codes",
    "publiccustomization": "public-fault-codes",
    "relationfaultcustomization": "relation-faults",
    "faultduration": "fault-duration",
    "nodedconfiguration": "node-fault-code",
    "switchfaultcode": "switch-fault-code",
    "faultcustomization": "fault-customization",
    "faultcode": "fault-code",
    FAULT_CONFIG_NAME: "fault-config",
    NODE_FAULT_CONFIG_NAME: "fault-config",
}
NOT_JUDGED = {
    "fault-duration": sentence("only ClusterD reads faultDuration.json, NPU Vigil does not"),
    "relation-faults": sentence(
        "only ClusterD reads relationFaultCustomization.json, NPU Vigil does not"
    ),
}
"""Kinds that are known and not checked here, each with the reason (clusterd#3.10)."""
SCALING_RULE = re.compile(r"elastic[_-]scaling(?:\.json|_list)")
_YAML_OBJECT = re.compile(r"^(apiVersion|kind|metadata|data):", re.MULTILINE)
_SWITCH_LISTS = frozenset(
    ("separatefaultcodes", "resetfaultcodes", "preseparatefaultcodes", "restartrequestfaultcodes")
)
_RULES = frozenset({"gracetolerance", "faultfrequency", "faultduration"})


def read_text(file: Path, source: str) -> str:
    """Return the text of ``file``, or of standard input where that is ``-``.

    In JSON what is not valid UTF-8 is replaced, as the agent does. Raises ``ConfigurationError``.
    """
    try:
        content = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        # Go's JSON decoder replaces bytes that are not UTF-8, and so does the agent.
        is_json = content.removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"{"
        return content.decode(errors="replace" if is_json else "strict")
    except OSError as error:
        problem = sentence("cannot be read: {reason}", reason=error.strerror)
    except UnicodeDecodeError as error:
        problem = sentence("is not UTF-8 text: {reason}", reason=error.reason)
    raise ConfigurationError(source, [Problem("(file)", problem)])


def kind_of(text: str, name: str, source: str) -> str:
    """Return the word of ``FileKind`` for ``text`` in a file of ``name``.

    Raises ``ConfigurationError`` where neither shows it, or nothing is there: a pipe whose first
    command failed.
    """
    if not text.strip():
        text = sentence("is empty; if it is meant to be, name what it is with --kind")
        problem = Problem("(file)", text)
        raise ConfigurationError(source, [problem])
    # Before the ConfigMaps, since a scaling rule may be in one.
    if SCALING_RULE.search(text):
        return "scaling-rule"
    if _YAML_OBJECT.search(text):
        return "fault-config"
    is_json = text.removeprefix("\ufeff").lstrip()[:1] in ("{", "[") and not _is_toml(text)
    members = _members(text) if is_json else {}
    if isinstance(members.get("data"), dict) or members.keys() >= {"kind", "apiversion"}:
        return "fault-config"
    # The content before the name: files are renamed.
    certain = _kind_of_members(members)
    if certain is not None:
        return certain
    for part, kind in _NAMES.items():
        if part in name.lower():
            return kind
    return _kind_of_json(members, source) if is_json else _kind_of_toml(text, source)


def _is_toml(text: str) -> bool:
    """Return whether a text that begins with a bracket is a table of TOML."""
    # A TOML table ``[name]`` and a JSON list both begin with a bracket.
    return re.match(r"\ufeff?\s*\[{1,2}\s*[A-Za-z_][\w.-]*\s*\]", text) is not None


def _members(text: str) -> dict[str, Any]:
    """Return the members of an object, or of the first object of a list."""
    try:
        content = json.loads(text.removeprefix("\ufeff"))
        if isinstance(content, list):
            content = content[0] if content else {}
        return {folded(key): value for key, value in content.items()}
    except (ValueError, RecursionError, AttributeError):
        return {}  # its reader reports what is wrong with it


def _kind_of_members(members: dict[str, Any]) -> str | None:
    """Return what only files of one kind have; ``None`` where the name must decide."""
    for key, kind in (
        ("publicfaultcode", "public-fault-codes"),
        ("publicfaultresource", "public-fault-codes"),
        ("triggerfault", "relation-faults"),
        ("relationfaults", "relation-faults"),
        ("timeoutinterval", "fault-duration"),
        ("faulttypecode", "node-fault-code"),
    ):
        if key in members:
            return kind
    if members.keys() & _RULES:
        return "fault-customization"
    codes = [code for member in members.values() if isinstance(member, list) for code in member]
    if members.keys() & _SWITCH_LISTS or str(next(iter(codes), "")).startswith("["):
        return "switch-fault-code"
    return None


def _kind_of_json(members: dict[str, Any], source: str) -> str:
    if any(member.endswith("codes") for member in members):
        return "fault-code"
    text = "cannot be known from its name or content: name what it is with --kind"
    raise ConfigurationError(source, [Problem("(file)", text)])


def _kind_of_toml(text: str, source: str) -> str:
    content = parse_toml(text, source)
    if "steps" in content:
        return "scenario"
    # An agent has one store, as a text; only the aggregator reads several.
    if isinstance(content.get("store"), list):
        return "aggregator"
    knows = {
        "agent": set(AgentConfiguration.__struct_fields__),
        "aggregator": set(AggregatorConfiguration.__struct_fields__),
    }
    # The one that knows more of the keys; a misspelled key then is reported by its reader.
    return max(knows, key=lambda item: len(content.keys() & knows[item]))


def check_document(key: str, text: str, source: str) -> None:
    """Check the document ``key`` of a fault configuration.

    Raises ``ConfigurationError`` with everything that has not the effect it seems to have.
    """
    problems = [problem.problem for problem in judge_texts({key: text}, {}, InForce()).problems]
    if problems:
        raise ConfigurationError(source, problems)


def check_public_fault_codes(text: str, source: str) -> None:
    """Check a table of public faults. Raises like ``check_document``."""
    try:
        _, problems = read_public_fault_table(text, source)
    except DocumentError as error:
        problems = (Problem(error.where, error.what), *error.more)
    if problems:
        raise ConfigurationError(source, list(problems))


def check_form(text: str, source: str) -> None:
    """Check that a file that is not judged is a list of objects. Raises ``ConfigurationError``."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(source, [Problem("(file)", f"is not JSON: {error}")]) from None
    if not isinstance(content, list) or not all(isinstance(item, dict) for item in content):
        raise ConfigurationError(source, [Problem("(file)", "is not a list of objects")])


def check_config_map(text: str, source: str) -> None:
    """Check a whole ConfigMap, as JSON or as YAML. Raises like ``check_document``."""
    config_map, data, problems = _read_config_map(text, source)
    for problem in judge({config_map: data}, {}, InForce()).problems:
        where = f"data[{problem.document!r}] {problem.problem.where}"
        problems.append(Problem(where, problem.problem.what))
    if problems:
        raise ConfigurationError(source, problems)


def read_config_map(text: str, source: str) -> dict[str, str]:
    """Return the data of a ConfigMap, as JSON or as YAML.

    Raises ``ConfigurationError`` for what is neither, or what the agent would not find.
    """
    _, data, problems = _read_config_map(text, source)
    if problems:
        raise ConfigurationError(source, problems)
    return data


def _read_config_map(
    text: str, source: str
) -> tuple[OperatorConfigMap, dict[str, str], list[Problem]]:
    """Return which one it is, its data, and what keeps the agent from finding it."""
    content = _object(text, source)
    config_map = _which(content)
    problems = list(_misplaced(content, config_map))
    data = {}
    given = content.get("data")
    for key, value in given.items() if isinstance(given, dict) else ():
        if isinstance(value, str):
            data[str(key)] = value
        else:
            message = "is not text; in YAML write the document behind a '|', numbers in quotes"
            problems.append(Problem(f"data[{key!r}]", message))
    return config_map, data, problems


def _which(content: dict[str, Any]) -> OperatorConfigMap:
    """Return the ConfigMap that is meant: by its name, else by what is in it."""
    metadata, data = content.get("metadata"), content.get("data")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    for config_map in CONFIG_MAPS:
        if name == config_map.name:
            return config_map
    keys = data.keys() if isinstance(data, dict) else set()
    return NODE_CONFIG_MAP if keys & set(NODE_CONFIG_MAP.documents) else CHIP_CONFIG_MAP


def _object(text: str, source: str) -> dict[str, Any]:
    import yaml

    try:
        # Not every JSON text is YAML (tabs), and JSON is quicker.
        content = json.loads(text) if text.lstrip()[:1] == "{" else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        reason = " ".join(str(error).split())
        problem = Problem("(file)", f"is neither JSON nor YAML: {reason}")
        raise ConfigurationError(source, [problem]) from None
    except Exception as error:  # what the library makes of a tag that does not fit its value
        problem = Problem("(file)", f"a value is not what its tag names: {error!r}")
        raise ConfigurationError(source, [problem]) from None
    if not isinstance(content, dict):
        problem = Problem("(file)", "is not a valid ConfigMap: it is not an object")
        raise ConfigurationError(source, [problem])
    return content


def _misplaced(content: dict[str, Any], config_map: OperatorConfigMap) -> list[Problem]:
    """Return what keeps the agent from finding any of it."""
    problems = []
    if content.get("kind", "ConfigMap") != "ConfigMap":
        problems.append(Problem("kind", f"{_shown(content['kind'])} is not ConfigMap"))
    metadata = content.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    for member, right in (("name", config_map.name), ("namespace", config_map.namespace)):
        result = metadata.get(member, right)
        if result != right:
            read = " and ".join(
                f"{config_map.namespace}/{config_map.name}" for config_map in CONFIG_MAPS
            )
            text = f"{_shown(result)} is not {right}: what is read is {read}"
            problems.append(Problem(f"metadata.{member}", text))
    if not isinstance(content.get("data"), dict):
        keys = ", ".join(config_map.documents)
        problems.append(Problem("data", f"has no documents; there may be {keys}"))
    if content.get("binaryData"):
        problems.append(Problem("binaryData", "is not read; put the texts into data"))
    return problems


def _shown(value: object) -> str:
    """Return ``value`` as text. In YAML a few lines may be a list of billions."""
    return (
        repr(quoted(value))
        if isinstance(value, str)
        else f"what is not text ({type(value).__name__})"
    )


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
