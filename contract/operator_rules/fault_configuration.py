"""The operator's fault configuration: which documents it has, and which of them are in force.

Source: ``docs/spec/device-plugin.md#3.1``, ``docs/spec/noded.md#3.1``.
"""

from __future__ import annotations

import hashlib
import re
from enum import StrEnum
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from contract.codes import catalogue
from contract.errors import MAX_LISTED, ConfigurationError, DocumentError, Problem, quoted
from contract.operator_rules.customization import CUSTOMIZATION_KEY, read_customization
from contract.operator_rules.fault_codes import FAULT_CODE_KEY, read_fault_codes
from contract.operator_rules.node_levels import NODE_CONFIGURATION_KEY, read_node_levels
from contract.operator_rules.switch_levels import SWITCH_FAULT_CODE_KEY, read_switch_levels
from contract.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from contract.codes.catalogue import Catalogue

FAULT_CONFIG_NAMESPACE = "kube-system"
FAULT_CONFIG_NAME = "mindx-dl-fault-config"
NODE_FAULT_CONFIG_NAMESPACE = "mindx-dl"
NODE_FAULT_CONFIG_NAME = "mindx-dl-node-fault-config"
POLL_INTERVAL_KEY = "PollInterval"
_POLL_SECONDS = (30, 3600)
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_SURROGATE = re.compile("[\ud800-\udfff]")

# ``faultCode.json`` is before the rules, which must repeat its spellings (device-plugin#2.5).
DOCUMENTS = {
    FAULT_CODE_KEY: "fault_code",
    CUSTOMIZATION_KEY: "customization",
    SWITCH_FAULT_CODE_KEY: "switch_fault_code",
    NODE_CONFIGURATION_KEY: "node",
}
"""Key of a document in its ConfigMap, and name of its file: its member in ``FaultTexts``."""


class OperatorConfigMap(Record, frozen=True):
    """One that operators write: where it is, and the keys that have an effect in it.

    ``is_whole``: one that lacks a document is as wrong as one in which it cannot be decoded.
    """

    namespace: str
    name: str
    documents: tuple[str, ...]
    others: tuple[str, ...] = ()
    is_whole: bool = False


CHIP_CONFIG_MAP = OperatorConfigMap(
    FAULT_CONFIG_NAMESPACE,
    FAULT_CONFIG_NAME,
    (FAULT_CODE_KEY, CUSTOMIZATION_KEY, SWITCH_FAULT_CODE_KEY),
    (POLL_INTERVAL_KEY,),
)
NODE_CONFIG_MAP = OperatorConfigMap(
    NODE_FAULT_CONFIG_NAMESPACE, NODE_FAULT_CONFIG_NAME, (NODE_CONFIGURATION_KEY,), is_whole=True
)
CONFIG_MAPS = (CHIP_CONFIG_MAP, NODE_CONFIG_MAP)
_CONFIG_MAP_OF = {key: config_map for config_map in CONFIG_MAPS for key in config_map.documents}


class FaultTexts(msgspec.Struct, frozen=True, omit_defaults=True):
    """The documents in force, each as its text; ``None``: the one of this package.

    All of them can be decoded: one that cannot never replaces one that could.
    """

    fault_code: str | None = None
    customization: str | None = None
    switch_fault_code: str | None = None
    node: str | None = None

    @property
    def digest(self) -> str:
        """The name of this configuration in the journal."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()


class ConfigurationPlace(StrEnum):
    """Where a document in force was found."""

    CONFIG_MAP = "configmap"
    FILE = "file"
    SHIPPED = "shipped"


class InForce(msgspec.Struct, frozen=True):
    """The documents in force and the place where each was found, by its key."""

    texts: FaultTexts = FaultTexts()
    places: dict[str, ConfigurationPlace] = {}

    def place_of(self, key: str) -> ConfigurationPlace:
        """Return where the document ``key`` in force was found."""
        return self.places.get(key, ConfigurationPlace.SHIPPED)


class FaultProblem(Record, frozen=True):
    """Something in ``document`` (its key) as found at ``place`` that has not the effect it seems
    to have. ``config_map`` is the one that has it, where one has."""

    document: str
    place: ConfigurationPlace
    problem: Problem
    config_map: OperatorConfigMap | None = None

    def __str__(self) -> str:
        where = "ConfigMap" if self.place is ConfigurationPlace.CONFIG_MAP else self.place.value
        return f"{self.document} ({where}): {self.problem}"


class Judged(Record, frozen=True):
    """What is in force from now on.

    ``kept`` are the keys of documents that stay in force though there is another text in their
    place, which cannot be decoded or read, or while it is not known what is there.
    """

    in_force: InForce
    kept: frozenset[str]
    catalogue: Catalogue
    problems: tuple[FaultProblem, ...]


def catalogue_of(texts: FaultTexts) -> Catalogue:
    """Return the tables that ``texts`` make.

    Raises ``ConfigurationError`` for texts that cannot be decoded.
    """
    documents = _Documents()
    for key, member in DOCUMENTS.items():
        documents.read(key, getattr(texts, member))
    return documents.tables


class _Documents:
    """Documents that were read: the customisation after the level tables."""

    def __init__(self) -> None:
        self.tables = catalogue.shipped()
        self.problems: dict[str, tuple[Problem, ...]] = {}
        self._spellings: Mapping[int, str] = {}

    def read(self, key: str, text: str | None) -> None:
        """Take over ``text``; ``None`` for the shipped one. Raises ``ConfigurationError``."""
        if text is None:
            return
        try:
            self.problems[key] = self._read(key, text)
        except DocumentError as error:
            raise ConfigurationError(
                error.document, [Problem(error.where, error.what), *error.more]
            ) from None

    def _read(self, key: str, text: str) -> tuple[Problem, ...]:
        if key == FAULT_CODE_KEY:
            codes = read_fault_codes(text)
            self.tables = replace(self.tables, chip_levels=codes.levels)
            self._spellings, problems = codes.spellings, codes.problems
        elif key == CUSTOMIZATION_KEY:
            # The shipped table is loaded first, so its spellings are known (device-plugin#2.5).
            rules = read_customization(text, {**self._spellings, **_shipped_spellings()})
            self.tables = replace(
                self.tables, frequencies=rules.frequencies, durations=rules.durations
            )
            problems = rules.problems
        elif key == SWITCH_FAULT_CODE_KEY:
            switches = read_switch_levels(text)
            self.tables = replace(self.tables, switch_levels=switches.levels)
            problems = switches.problems
        else:
            node = read_node_levels(text)
            self.tables = replace(self.tables, node_levels=node.levels)
            problems = node.problems
        return problems


@cache
def _shipped_spellings() -> Mapping[int, str]:
    return {int(code, 16): code.lower() for code in catalogue.shipped().chip_levels}


def judge_texts(
    data: Mapping[str, str] | None,
    files: Mapping[str, str],
    before: InForce,
) -> Judged:
    """``judge`` where ``data`` has each document in its ConfigMap; ``None``: not known."""
    given: Mapping[OperatorConfigMap, Mapping[str, str] | None] = {}
    if data is not None:
        node = {key: text for key, text in data.items() if key in NODE_CONFIG_MAP.documents}
        chips = {key: text for key, text in data.items() if key not in node}
        given = {CHIP_CONFIG_MAP: chips, NODE_CONFIG_MAP: node or None}
    return judge(given, files, before)


def judge(
    config_maps: Mapping[OperatorConfigMap, Mapping[str, str] | None],
    files: Mapping[str, str],
    before: InForce,
    unreadable: Mapping[str, str] | None = None,
) -> Judged:
    """Return which documents are in force, each by itself, after ``before``.

    ``config_maps`` has the data of each ConfigMap, ``None`` for one that is not there. Of one that
    is not in it, nothing is known: what it gave once stays. ``files`` are texts by
    file name; ``unreadable`` is why a file that is there could not be read. The first of
    ConfigMap, file and package that has a document decides; what it has and cannot be decoded
    changes nothing. The texts of ``before`` can be.
    """
    members: dict[str, str | None] = {}
    places = {}
    unchanged_keys = set()
    documents = _Documents()
    problems: list[FaultProblem] = []
    for key, member in DOCUMENTS.items():
        config_map = _CONFIG_MAP_OF[key]
        place, text = _found(key, config_maps, files, unreadable or {}, before)
        source = config_map if place is ConfigurationPlace.CONFIG_MAP else None
        bad: tuple[Problem, ...] = ()
        if place is ConfigurationPlace.FILE and text is None:
            assert unreadable is not None
            bad = (Problem("(file)", f"cannot be read: {unreadable[key]}"),)
        elif place is ConfigurationPlace.CONFIG_MAP and text is None:
            bad = (Problem("(key)", "is not there"),)
        else:
            # Go replaces what is not Unicode (device-plugin#3.1);
            # the journal and the digest need UTF-8.
            text = None if text is None else _SURROGATE.sub("\ufffd", text)
            try:
                documents.read(key, text)
            except ConfigurationError as error:
                bad = error.problems
        if not bad:
            members[member], places[key] = text, place
            of_document = documents.problems.get(key, ())
            problems += [FaultProblem(key, place, problem, source) for problem in of_document]
            if place is ConfigurationPlace.CONFIG_MAP and config_map not in config_maps:
                unchanged_keys.add(key)
            continue
        for wrong in bad:
            message = f"{wrong.what}; what was in force before stays"
            problems.append(FaultProblem(key, place, Problem(wrong.where, message), source))
        unchanged_keys.add(key)
        members[member], places[key] = getattr(before.texts, member), before.place_of(key)
        # Read again, since the tables are made of all documents in force.
        documents.read(key, members[member])
    for config_map, data in config_maps.items():
        # A ConfigMap may have a mebibyte of keys that mean nothing (``FoundProblems``).
        for key, problem in islice(_others(data or {}, config_map), MAX_LISTED):
            problems.append(FaultProblem(key, ConfigurationPlace.CONFIG_MAP, problem, config_map))
    for key, problem in islice(_others(files, None), MAX_LISTED):
        problems.append(FaultProblem(key, ConfigurationPlace.FILE, problem))
    in_force = InForce(
        FaultTexts(**members),
        # Without shipped ones, so that equal configurations are equal values.
        {key: p for key, p in places.items() if p is not ConfigurationPlace.SHIPPED},
    )
    return Judged(in_force, frozenset(unchanged_keys), documents.tables, tuple(problems))


def _found(
    key: str,
    config_maps: Mapping[OperatorConfigMap, Mapping[str, str] | None],
    files: Mapping[str, str],
    unreadable: Mapping[str, str],
    before: InForce,
) -> tuple[ConfigurationPlace, str | None]:
    """Where the document is now, and its text; ``None`` for the shipped, an unreadable or a
    missing one."""
    config_map = _CONFIG_MAP_OF[key]
    # An interrupted watch is not a deletion: what the ConfigMap gave stays.
    if config_map not in config_maps and before.place_of(key) is ConfigurationPlace.CONFIG_MAP:
        return ConfigurationPlace.CONFIG_MAP, getattr(before.texts, DOCUMENTS[key])
    data = config_maps.get(config_map)
    if data is not None and (key in data or config_map.is_whole):
        return ConfigurationPlace.CONFIG_MAP, data.get(key)
    if key in files:
        return ConfigurationPlace.FILE, files[key]
    return (ConfigurationPlace.FILE if key in unreadable else ConfigurationPlace.SHIPPED), None


def _others(
    given: Mapping[str, str], config_map: OperatorConfigMap | None
) -> Iterator[tuple[str, Problem]]:
    """Yield what is wrong with keys that are no document of the place.

    ``PollInterval`` has no effect: what is here is watched, not polled.
    """
    low, high = _POLL_SECONDS
    names = (
        (*DOCUMENTS, POLL_INTERVAL_KEY)
        if config_map is None
        else (*config_map.documents, *config_map.others)
    )
    for key, text in given.items():
        if key not in names:
            message = f"is not known and has no effect; known here: {', '.join(names)}"
            yield quoted(key), Problem("$", message)
        elif key == POLL_INTERVAL_KEY and (
            not _INTEGER.fullmatch(text) or not low <= int(text) <= high
        ):
            message = (
                f"{quoted(text)!r} is not a valid number of seconds from {low} to {high} (without "
                "effect: changes are watched)"
            )
            yield key, Problem("$", message)
