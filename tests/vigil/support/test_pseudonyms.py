"""Equal names get equal pseudonyms within an archive, others in another, also inside of texts."""

from __future__ import annotations

import json
import re

from vigil.support.pseudonyms import Pseudonyms

_LEARNT = {
    "node": "gpu-rack7-node12",
    "pod": "team-blue/train-0",
    "serial_number": "2102312ABCDEF",
    "items": [{"namespace": "secret-project", "pods": ["secret-project/llm-1"]}],
}


def _of(key: bytes = b"key") -> Pseudonyms:
    pseudonyms = Pseudonyms(key)
    pseudonyms.learn(_LEARNT)
    return pseudonyms


def test_equal_names_stay_equal_in_every_text() -> None:
    name = _of().text("gpu-rack7-node12")
    assert re.fullmatch(r"node-[0-9a-f]{10}", name)
    for before, after in (
        ("Nov 29 gpu-rack7-node12 vigil[1]: chip 3", f"Nov 29 {name} vigil[1]: chip 3"),
        ("mindx-dl-deviceinfo-gpu-rack7-node12.", f"mindx-dl-deviceinfo-{name}."),
        ("GPU-RACK7-NODE12 is lost", f"{name} is lost"),
        (json.dumps("a\ngpu-rack7-node12"), f'"a\\n{name}"'),
        ('{\\"node\\":\\"gpu-rack7-node12\\"}', f'{{\\"node\\":\\"{name}\\"}}'),
        ("gpu-rack7-node12.example.org", f"{name}.example.org"),
        ("gpu-rack7-node123", "gpu-rack7-node123"),
    ):
        assert _of().text(before) == after


def test_another_archive_has_other_pseudonyms() -> None:
    assert _of(b"a").text("gpu-rack7-node12") != _of(b"b").text("gpu-rack7-node12")


def test_each_kind_is_replaced() -> None:
    text = _of().text("team-blue/train-0 secret-project llm-1 2102312ABCDEF 10.1.2.3 fe80::1:2")
    for name in ("blue", "train-0", "secret", "llm", "2102312", "10.1", "fe80"):
        assert name not in text
    assert [word.split("-")[0] for word in re.split("[ /]", text)] == [
        *("namespace", "pod", "namespace", "pod", "serial", "address", "address"),
    ]


def test_addresses_are_replaced_and_times_are_not() -> None:
    pseudonyms = _of()
    text = "05:30:12 from 10.0.0.5. to [2001:db8::7]:443 by 0c:11:22:33:44:55 at 127.0.0.1"
    shown = pseudonyms.text(text)
    assert shown.startswith("05:30:12 from address-")
    assert shown.endswith("at 127.0.0.1")
    for part in ("10.0.0.5", "2001", "0c:11"):
        assert part not in shown
    assert pseudonyms.text("10.0.0.5") == pseudonyms.text("x 10.0.0.5:80").split()[1][:-3]


def test_names_in_logs_are_learnt() -> None:
    pseudonyms = Pseudonyms(b"key")
    pseudonyms.learn("deleted pod team-red/job-7 on node worker-9; serial number 21023XYZ9")
    shown = pseudonyms.text("job-7 of team-red on worker-9, 21023XYZ9")
    for name in ("job-7", "team-red", "worker-9", "21023XYZ9"):
        assert name not in shown


def test_keys_of_json_and_names_with_odd_letters_are_replaced() -> None:
    pseudonyms = Pseudonyms(b"key")
    pseudonyms.learn({"node": "the node é", "nodes": ["n-1"]})
    shown = pseudonyms.value({"n-1": ["on the node é now"]})
    assert "n-1" not in json.dumps(shown, ensure_ascii=False).replace("node-", "")
    assert "é" not in json.dumps(shown, ensure_ascii=False)


def test_names_that_everybody_has_stay() -> None:
    pseudonyms = Pseudonyms(b"key")
    pseudonyms.learn({"namespace": "kube-system", "node": ""})
    assert pseudonyms.text("kube-system") == "kube-system"
