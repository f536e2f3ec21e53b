"""Texts that are no manifests, or that attack who reads them: named, and nothing else happens."""

from __future__ import annotations

import json
import resource
import time
import tracemalloc
from typing import TYPE_CHECKING

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from advisor.findings import FindingSeverity
from advisor.lint.finding import in_words
from tests.parts.examples import examples, mostly_slow
from tests.vigil.lint.case_files import CASES, NAMES
from tests.vigil.lint.manifests import (
    Object,
    inference_service,
    leader_worker_set,
    runner,
    runtime,
)
from vigil.lint.reading import MAX_BYTES, File, files
from vigil.lint.run import lint

if TYPE_CHECKING:
    from pathlib import Path

RIGHT = (CASES / "RETRIES_NOT_NUMBER.right.yaml").read_text()
WRONG = (CASES / "RETRIES_NOT_NUMBER.wrong.yaml").read_text()


def found(text: str, name: str = "x.yaml") -> list[tuple[str, int]]:
    """Return the codes and lines of the findings in a text."""
    return [(one.rule.code, one.place.line) for one in lint([File(name, text)]).findings]


def written(path: Path, content: bytes) -> list[tuple[str, int, str]]:
    """Return codes, lines and reasons of the findings in a file."""
    path.write_bytes(content)
    report = lint(files([str(path)]))
    return [(one.rule.code, one.place.line, one.happens) for one in report.findings]


def test_all_errors_of_a_text_at_once() -> None:
    text = "a: 1\nb: [1, 2\nc: 3\n---\n" + RIGHT + "---\nd:\n\te: 1\nf: g: h\n"
    lines = text.splitlines()
    expected = [2, lines.index("\te: 1") + 1, lines.index("f: g: h") + 1]
    assert found(text) == [("UNREADABLE", line) for line in expected]


def test_an_error_does_not_hide_other_documents() -> None:
    codes = dict(found(f"a: [\n---\n{WRONG}"))
    assert codes.keys() == {"UNREADABLE", "RETRIES_NOT_NUMBER"}


def _lists() -> str:
    rows = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 40)]
    return f"a0: &a0 [x, x]\n{''.join(rows)}"


def _objects() -> str:
    inner = ", ".join(["*b"] * 9)
    head = "kind: List\napiVersion: v1\nitems:\n"
    return f"{head}  - &b {{kind: List, apiVersion: v1, items: [{inner}]}}\n  - *b\n"


def _merges() -> str:
    rows = [f"k{i}: &k{i} {{<<: [{', '.join([f'*k{i - 1}'] * 9)}]}}\n" for i in range(1, 10)]
    head = "apiVersion: apps/v1\nkind: Deployment\nk0: &k0 {a: b}\n"
    return f"{head}{''.join(rows)}metadata: {{name: x, labels: *k9}}\n"


@pytest.mark.parametrize(
    ("text", "codes"),
    [(_lists(), ["UNKNOWN_KIND"]), (_objects(), ["UNREADABLE"]), (_merges(), ["UNREADABLE"])],
    ids=["lists", "objects", "merges"],
)
def test_aliases_do_not_multiply_the_work(text: str, codes: list[str]) -> None:
    begin = time.process_time()
    assert [code for code, _ in found(text)] == codes
    assert time.process_time() - begin < 3


@pytest.mark.slow
def test_containers_by_aliases_are_refused() -> None:
    many = ", ".join(["*c"] * 400)
    text = (
        "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata:\n  name: x\nspec:\n"
        "  x1: &e {name: A, value: b}\n"
        f"  x2: &c {{name: c, env: [{', '.join(['*e'] * 400)}]}}\n"
        f"  x3: &t {{template: {{spec: {{containers: [{many}]}}}}}}\n"
        f"  tasks: [{', '.join(['*t'] * 400)}]\n"
    )
    begin = time.process_time()
    assert found(text) == [("UNREADABLE", 1)]
    assert time.process_time() - begin < 3


@pytest.mark.parametrize(
    "text",
    ["[" * 20_000, "{a: " * 20_000, "- " * 20_000, "".join(f"{' ' * i}a:\n" for i in range(3000))],
    ids=["flow", "mappings", "dashes", "block"],
)
def test_deep_texts_are_refused(text: str) -> None:
    begin = time.process_time()
    ((code, _),) = found(text)
    assert code == "UNREADABLE"
    assert time.process_time() - begin < 3


def test_cut_off_texts_name_a_line() -> None:
    as_json = json.dumps(yaml.safe_load(RIGHT), indent=1)
    for end in range(len(as_json) - 1, 1, -37):
        findings = found(as_json[:end], "x.json")
        assert [code for code, _ in findings] == ["UNREADABLE"], as_json[:end]
        assert 1 <= findings[0][1] <= as_json[:end].count("\n") + 1


def test_control_characters_are_named() -> None:
    text = RIGHT.replace("name: bert", "name: be\x07rt", 1)
    line = text[: text.index("\x07")].count("\n") + 1
    assert found(text) == [("UNREADABLE", line)]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    content = RIGHT.encode()
    name = content.index(b"bert")
    ((code, line, why),) = written(path, content[:name] + b"\xff" + content[name:])
    assert (code, line) == ("UNREADABLE", 1 + content.count(b"\n", 0, name))
    assert "UTF-8" in why
    assert [one[:2] for one in written(path, b"")] == [("UNREADABLE", 1)]
    assert [one[:2] for one in written(path, b" \n\n")] == [("UNREADABLE", 1)]
    assert written(path, b"# only a comment\n") == []
    assert written(path, b"\xef\xbb\xbf" + content) == []
    report = lint(files([str(tmp_path / "missing.yaml"), "/dev/null"]))
    assert [one.rule.code for one in report.findings] == ["UNREADABLE"] * 2


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate(100 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (one,) = lint(files([str(path)])).findings
    assert one.rule.code == "UNREADABLE"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 3 * (MAX_BYTES >> 10)


@pytest.mark.parametrize(("name", "text"), [("x.yaml", "- a\n"), ("x.json", "1,")])
def test_more_values_than_memory_are_refused(
    name: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("yaml_text", "json_text"):
        monkeypatch.setattr(f"vigil.lint.{module}.MAX_VALUES", 1000)
    for count, codes in ((900, ["UNKNOWN_KIND"]), (1100, ["UNREADABLE"])):
        many = f"[{text * count}1]" if name == "x.json" else text * count
        assert [code for code, _ in found(many, name)] == codes


def test_an_unreadable_file_is_not_silenced() -> None:
    assert found("a: b: c  # vigil: ignore UNREADABLE it is so\n") == [("UNREADABLE", 1)]


def test_tags_construct_nothing(tmp_path: Path) -> None:
    made = tmp_path / "made"
    text = f"a: !!python/object/apply:os.mkdir ['{made}']\n"
    assert found(text) == [("UNREADABLE", 1)]
    assert not made.exists()
    assert found(RIGHT.replace('"3"', "!!str 3")) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("apiVersion: v1\nkind: Thing\n", []),
        ("apiVersion: example.com/v1\nkind: Thing\n", [("UNKNOWN_KIND", 2)]),
        ("kind: Thing\n", []),
        ("apiVersion: mindxdl.gitee.com/v2\nkind: AscendJob\n", [("UNKNOWN_VERSION", 1)]),
        ("kind: AscendJob\n", [("UNKNOWN_VERSION", 1)]),
        ("just a text\n", [("UNKNOWN_KIND", 1)]),
        ("- 1\n", [("UNKNOWN_KIND", 1)]),
        ("metadata: {{ x }}\n", [("TEMPLATE", 1)]),
        ("{{- if x }}\nkind: Job\n{{- end }}\n", [("TEMPLATE", 1)]),
        ("{% if x %}\nkind: Job\n{% endif %}\n", [("TEMPLATE", 1)]),
        ("kind: Job\nmetadata:\n  name: '{{ x }}'\n", [("TEMPLATE", 1)]),
    ],
)
def test_kinds_without_a_judgement_are_named(text: str, expected: list[tuple[str, int]]) -> None:
    assert found(text) == expected


def test_braces_in_commands_are_no_template() -> None:
    text = RIGHT.replace(
        "image: bert:1\n", "image: bert:1\n              command: [sh, '-c', '{{.ID}} {% x %}']\n"
    )
    assert found(text) == []


def test_unknown_fields_are_nothing() -> None:
    text = RIGHT.replace("spec:\n", "spec:\n  fieldOfTomorrow: {a: [1, {b: null}]}\n", 1)
    assert found(text) == []


_OF_TEXTS = ("UNREADABLE", "TEMPLATE", "DUPLICATE_KEY", "REPEATED_KEY")
"""Codes about how a text is written, which another form of the same objects does not have."""


@pytest.mark.parametrize(
    "name", mostly_slow([name for name in NAMES if not name.startswith(_OF_TEXTS)], 6)
)
def test_the_same_in_json_and_in_a_list(name: str) -> None:
    """What a YAML file raises, its documents raise as JSON and in a List, at other lines."""
    text = (CASES / f"{name}.wrong.yaml").read_text()
    documents = [one for one in yaml.safe_load_all(text) if one is not None]
    if any("kind" not in one for one in documents):
        return
    codes = sorted(one for one, _ in found(text))
    a_list = {"apiVersion": "v1", "kind": "List", "items": documents}
    assert sorted(one for one, _ in found(json.dumps(a_list, indent=2), "x.json")) == codes
    assert sorted(one for one, _ in found(yaml.safe_dump(a_list))) == codes


def test_anchors_and_merges_are_followed() -> None:
    text = (
        "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata:\n  name: x\n"
        "  labels: &labels\n    fault-scheduling: Force\n"
        "spec:\n  schedulerName: volcano\n  tasks:\n"
        "    - replicas: 1\n      template:\n        metadata:\n          labels:\n"
        "            <<: *labels\n            app: x\n"
    )
    assert found(text) == [("FAULT_SCHEDULING_UNSUPPORTED", 6)]


def _warnings(objects: list[Object]) -> list[tuple[str, str]]:
    """Return codes and objects of what is wrong with objects."""
    report = lint([File("x.yaml", yaml.safe_dump_all(objects))])
    wrong = [one for one in report.findings if one.rule.severity is not FindingSeverity.INFO]
    return [(one.rule.code, one.place.object) for one in wrong]


def test_a_runtime_that_two_services_use() -> None:
    """Each service is judged with the runtime, and the runtime not a third time."""
    services = [inference_service({"minReplicas": 1}, "r") for _ in range(2)]
    services[1]["metadata"] = {"name": "second"}
    shown = _warnings([*services, runtime({"fault-scheduling": "force"}, **runner())])
    code = "OME_WITHOUT_POD_RESCHEDULING"
    assert shown == [(code, "InferenceService i"), (code, "InferenceService second")]


def _pod_group(name: str, kind: str, owner: str, **spec: object) -> Object:
    """Return a PodGroup that a controller made, of an elastic job by its labels."""
    reference = {"apiVersion": "v1", "kind": kind, "name": owner, "uid": "1", "controller": True}
    labels = {"elastic-scheduling": "on", "fault-scheduling": "grace"}
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "labels": labels, "ownerReferences": [reference]},
        "spec": spec,
    }


def test_an_owner_that_is_not_there() -> None:
    """A PodGroup is not judged as what its owner is, and not by the name of its owner."""
    alone = [_pod_group(name, name, "x", minMember=1) for name in ("Job", "StatefulSet", "Pod")]
    assert found(yaml.safe_dump_all(alone)) == []
    del alone[0]["metadata"]["ownerReferences"]
    assert [code for code, _ in found(yaml.safe_dump(alone[0]))] == ["ELASTIC_CONDITION"]


def test_two_pod_groups_for_one_pod() -> None:
    """A LeaderWorkerSet whose gangs were switched on later has PodGroups of both makers."""
    labels = {"fault-scheduling": "grace"}
    groups = [
        _pod_group("podgroup-1", "StatefulSet", "l-0", minMember=1),
        _pod_group("podgroup-2", "StatefulSet", "l", minMember=1),
        _pod_group("l-0-1", "Pod", "l-0", minMember=2),
    ]
    objects = [leader_worker_set(labels), *groups]
    assert _warnings(objects) == [("LWS_WITHOUT_GANG", "LeaderWorkerSet l")]
    assert _warnings([objects[0], groups[2]]) == []


_TEXTS = st.text(alphabet="ab:-[]{}\"'#&*!|>\n \t{%", max_size=60)


@pytest.mark.slow
@examples(300)
@given(_TEXTS, st.integers(0, len(WRONG)))
def test_nonsense_is_a_finding_and_never_an_error(nonsense: str, at: int) -> None:
    for text in (nonsense, WRONG[:at] + nonsense + WRONG[at:]):
        for name in ("x.yaml", "x.json"):
            lines = text.count("\n") + 1
            assert all(1 <= line <= lines for _, line in found(text, name))


def test_a_scaling_rule_outside_of_a_configmap() -> None:
    rule = """{
  "version": "1.0",   # as ever
  "elastic_scaling_list": [
    {"group_list": [{"group_name": "a", "group_num": "1", "server_num_per_group": "1"}]},
    {"group_list": [{"group_name": "a", "group_num": 2, "server_num_per_group": "1"}]}
  ]
}
"""
    expected = [
        ("SCALING_RULE_NO_JSON", 2),
        ("SCALING_RULE_GROWS", 5),
        ("SCALING_RULE_NO_STRING", 5),
    ]
    assert found(rule, "elastic_scaling.json") == expected
    assert found(rule, "rule.yaml") == expected
    right = rule.replace("   # as ever", "").replace(": 2", ': "1"')
    assert found(right, "elastic_scaling.json") == []


def test_names_of_a_word_are_limited() -> None:
    names = [f"worker-group-{number}" for number in range(4000)]
    tracemalloc.start()
    word = in_words(names)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 500_000
    assert word == f"{', '.join(names[:11])} and 3989 more"
    assert in_words(names[:11]) == ", ".join(names[:11])
