"""Labels and annotations as they are written: types, misspelled keys, values without effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.lint.finding import PlacedText, finding, in_words
from advisor.lint.model import Scalar, ScalarKind
from advisor.similar_words import nearest, nearest_key
from contract.documents.elastic_job import SWITCH
from contract.scheduling import (
    AFFINITY_CONFIG,
    APP,
    DEPLOY_SERVER_LABELS,
    ELASTIC_SCHEDULING,
    ELASTIC_SCHEDULING_VALUES,
    FAULT_RETRY_TIMES,
    FAULT_SCHEDULING,
    FAULT_SCHEDULING_VALUES,
    FAULT_TYPE,
    FILTER_FAULT_CODE,
    FILTER_FAULT_LEVEL,
    GROUP_ANNOTATION,
    INFER_SERVICE_SCHEDULE,
    JOB_ID,
    MIN_REPLICAS,
    MINDIE_APPS,
    OME_SERVICE,
    POD_RESCHEDULING,
    POD_RESCHEDULING_VALUES,
    PROCESS_RECOVER,
    PROCESS_RECOVER_STRATEGY,
    PROCESS_RECOVER_VALUES,
    RACK_BLOCK,
    RECOVER_POLICY_PATH,
    RECOVER_POLICY_POD,
    RECOVER_STRATEGY,
    SCALING_GROUP,
    SCALING_RULE,
    SCHEDULE_MIN_AVAILABLE,
    SCHEDULE_POLICY,
    SUB_HEALTH_STRATEGIES,
    SUB_HEALTH_STRATEGY,
    SUPER_POD_BLOCK,
    SUPER_POD_FIT,
    TOR_AFFINITY,
    TOR_AFFINITY_VALUES,
    go_integer,
)
from contract.sentences import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from advisor.lint.finding import FindingPlace, LintFinding
    from advisor.lint.model import Mapping
    from advisor.lint.workload import Texts

RING_CONTROLLER = "ring-controller.atlas"
LABELS = (
    FAULT_SCHEDULING,
    POD_RESCHEDULING,
    FAULT_RETRY_TIMES,
    PROCESS_RECOVER,
    SUB_HEALTH_STRATEGY,
    FAULT_TYPE,
    ELASTIC_SCHEDULING,
    TOR_AFFINITY,
    SCALING_RULE,
    SCALING_GROUP,
    OME_SERVICE,
)
ANNOTATIONS = (
    RECOVER_POLICY_PATH,
    SCHEDULE_MIN_AVAILABLE,
    SUPER_POD_BLOCK,
    RACK_BLOCK,
    SUPER_POD_FIT,
    MIN_REPLICAS,
    PROCESS_RECOVER_STRATEGY,
    RECOVER_STRATEGY,
    SCHEDULE_POLICY,
    INFER_SERVICE_SCHEDULE,
    AFFINITY_CONFIG,
    FILTER_FAULT_CODE,
    FILTER_FAULT_LEVEL,
    SWITCH,
)
KNOWN = LABELS + ANNOTATIONS
_KEPT = frozenset((*KNOWN, *DEPLOY_SERVER_LABELS, APP, JOB_ID, RING_CONTROLLER, GROUP_ANNOTATION))
_MISSED = (
    FAULT_SCHEDULING,
    FAULT_RETRY_TIMES,
    POD_RESCHEDULING,
    SCALING_GROUP,
    RECOVER_POLICY_PATH,
    SCHEDULE_MIN_AVAILABLE,
    MIN_REPLICAS,
)
"""Those whose absence is a finding."""
_OTHER_WORDS = frozenset(("maxReplicas", "fault-types"))
"""Almost a known key, and meant as it is."""
_SWITCHES = {
    POD_RESCHEDULING: (POD_RESCHEDULING_VALUES, "off"),
    PROCESS_RECOVER: (PROCESS_RECOVER_VALUES, "off"),
    ELASTIC_SCHEDULING: (ELASTIC_SCHEDULING_VALUES, "off"),
    TOR_AFFINITY: (TOR_AFFINITY_VALUES, "null"),
}
_ENUMERATED: dict[str, tuple[Sequence[str], str]] = {
    FAULT_SCHEDULING: (FAULT_SCHEDULING_VALUES, "FAULT_SCHEDULING_UNSUPPORTED"),
    SUB_HEALTH_STRATEGY: (SUB_HEALTH_STRATEGIES, "SUBHEALTH_UNSUPPORTED"),
}
_TYPES = {
    ScalarKind.INTEGER: sentence("number"),
    ScalarKind.FLOAT: sentence("number"),
    ScalarKind.BOOLEAN: sentence("boolean"),
}
_TRUE = frozenset(("true", "yes", "on", "y"))


def kept(mapping: Mapping | None, file: str, *, is_rendered: bool = False) -> Texts:
    """Return the labels or annotations that decide something.

    A misspelled key is a finding by itself, so it does not count as missing.
    """
    if mapping is None:
        return {}
    kept_keys = {}
    for key in mapping:
        meant = key if key in _KEPT else nearest_key(key, _MISSED)
        # Beside the right key, a misspelled one does not count.
        if meant is not None and (meant == key or meant not in mapping):
            value = mapping.get(key)
            if isinstance(value, Scalar):
                kept_keys[meant] = PlacedText(
                    value_of(value, is_rendered=is_rendered), value.line, file
                )
    return kept_keys


def both_kept(metadata: Mapping, file: str, *, is_rendered: bool = False) -> tuple[Texts, Texts]:
    """Return the labels and annotations below ``metadata`` that decide something.

    A key on the wrong side is a finding, and nothing is missing besides.
    """
    labels = kept(metadata.mapping("labels"), file, is_rendered=is_rendered)
    annotations = kept(metadata.mapping("annotations"), file, is_rendered=is_rendered)
    for key in _MISSED:
        right, wrong = (labels, annotations) if key in LABELS else (annotations, labels)
        if key in wrong:
            right.setdefault(key, wrong[key])
    return labels, annotations


def value_of(scalar: Scalar, *, is_rendered: bool) -> str:
    """Return a value as the API server gets it; rendered, as the template prints it.

    A boolean, which the API server does not take, is what it was meant to be.
    """
    kind = scalar.kind
    if kind is ScalarKind.NULL:
        return "None" if is_rendered else ""
    if kind is ScalarKind.BOOLEAN:
        is_true = scalar.text.lower() in _TRUE
        meant = "on" if is_true else "off"
        return str(is_true) if is_rendered else meant
    return scalar.text


def judge_keys(
    mapping: Mapping | None,
    place: FindingPlace,
    *,
    labels: bool,
    beside: Mapping | None,
    rendered: bool,
) -> Iterator[LintFinding]:
    """Return what is wrong with keys and values.

    ``beside`` are the annotations of an object for its labels, and the other way round.
    """
    if mapping is None:
        return
    for key, value in mapping.items():
        here = place.at(value.line)
        if not isinstance(value, Scalar):
            if key in _KEPT:
                words = {"type": sentence("no scalar"), "value": "..."}
                yield finding("LABEL_NOT_STRING", here, key=key, **words)
            continue
        kind = value.kind
        if kind in _TYPES and not rendered:
            words = {"type": _TYPES[kind], "value": value.text}
            yield finding("LABEL_NOT_STRING", here, key=key, **words)
        elif key in _KEPT:
            text = value_of(value, is_rendered=rendered)
            yield from _judge_value(key, text, here, labels=labels)
        if key in KNOWN:
            yield from _judge_side(key, here, labels=labels, beside=beside)
        elif key not in _OTHER_WORDS and (meant := nearest_key(key, KNOWN)) is not None:
            code = "SUBHEALTH_TYPO" if meant == SUB_HEALTH_STRATEGY else "LABEL_TYPO"
            yield finding(code, place.at(mapping.line_of(key)), key=key, known=meant)


def _judge_side(
    key: str, here: FindingPlace, *, labels: bool, beside: Mapping | None
) -> Iterator[LintFinding]:
    is_label = key in LABELS
    # Where it stands on the right side as well, the copy does no harm (decision 46).
    if is_label is not labels and (beside is None or beside.get(key) is None):
        right, wrong = sentence("label"), sentence("annotation")
        if not is_label:
            right, wrong = wrong, right
        yield finding("MISPLACED_KEY", here, key=key, right=right, wrong=wrong)


def _judge_value(
    key: str, value: str, here: FindingPlace, *, labels: bool
) -> Iterator[LintFinding]:
    """Check the value of a known key at the place where it is read."""
    shown = value or sentence("(empty)")
    if key == APP:
        meant = nearest(value, MINDIE_APPS) if labels else None
        if meant is not None:
            yield finding("APP_TYPO", here, value=value, known=meant)
    elif (key in LABELS) is not labels:
        return
    elif key in _ENUMERATED:
        values, code = _ENUMERATED[key]
        if value not in values:
            yield finding(code, here, value=shown, legal=in_words(values))
    elif key in _SWITCHES and value not in _SWITCHES[key][0]:
        values, counts = _SWITCHES[key]
        words = {"key": key, "counts": counts, "legal": in_words(values)}
        yield finding("VALUE_UNSUPPORTED", here, value=shown, **words)
    elif key == FAULT_RETRY_TIMES:
        number = go_integer(value)
        if number is None:
            yield finding("RETRIES_NOT_NUMBER", here, value=shown)
        elif number < 0:
            yield finding("RETRIES_NEGATIVE", here, value=value)
    elif key == RECOVER_POLICY_PATH and value != RECOVER_POLICY_POD:
        yield finding("RECOVER_PATH_UNSUPPORTED", here, value=shown)
    elif key == SCHEDULE_MIN_AVAILABLE and go_integer(value) is None:
        yield finding("MIN_AVAILABLE_NOT_NUMBER", here, value=shown)
