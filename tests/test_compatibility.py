"""The table of differences is complete in itself; each recording's test checks its rows."""

from __future__ import annotations

import json
import re

from contract.codes.catalogue import shipped
from tests import levels_by_release
from tests.compatibility import Difference, different, table
from tests.vectors import VECTORS

DEFECT = re.compile(r"[BKM]\d+|D-\d\d|(?:clusterd|device-plugin|noded)#\d\.\d+")


def known_recordings() -> set[str]:
    plugin = VECTORS / "device-plugin"
    examples = (plugin / "worked-examples.jsonl").read_text().splitlines()
    return {
        *(f"device-plugin/{path.stem}" for path in (plugin / "recordings").glob("*.json")),
        *(f"device-plugin/{json.loads(line)['id']}" for line in examples),
        *(f"device-plugin/EX-{number:02}" for number in range(1, 64)),
        *(f"noded/E{number}" for number in range(1, 20)),
        *(f"noded/{path.stem}" for path in (VECTORS / "noded/recordings").glob("*.json")),
        *(f"clusterd/{path.stem}" for path in (VECTORS / "clusterd").glob("*.json")),
        *(f"clusterd/E{number}" for number in range(1, 34)),
    }


def test_every_row_names_a_defect_and_a_recording_and_differs() -> None:
    assert table()
    known = known_recordings()
    for row in table():
        assert DEFECT.fullmatch(row.defect), row
        assert row.recording.partition("@")[0] in known, row
        assert row.difference.upstream != row.difference.ours, row


def test_no_row_is_there_twice() -> None:
    places = [(row.recording, row.difference.path) for row in table()]
    assert sorted(set(places)) == sorted(places)


def test_every_kind_of_difference_is_found() -> None:
    upstream = {"a": 1, "b": [1, {"c": 2}], "d": {"x": 1, "y": 2}, "e": True}
    ours = {"a": 1, "b": [2], "d": {"y": 2, "x": 1}, "e": 1, "f": "new"}
    assert sorted(different(upstream, ours)) == [
        Difference("$.b[0]", "1", "2"),
        Difference("$.b[1]", "(present)", "(absent)"),
        Difference("$.d (order)", '["x", "y"]', '["y", "x"]'),
        Difference("$.e", "true", "1"),
        Difference("$.f", "(absent)", '"new"'),
    ]
    assert list(different(upstream, upstream)) == []


def test_levels_that_changed_since_earlier_releases_are_those_of_the_tables() -> None:
    written = levels_by_release.DOCUMENT.read_text(encoding="utf-8")
    assert written == levels_by_release.document(), "run python -m tests.levels_by_release"


def test_levels_that_the_specification_calls_todays_are_those_of_the_tables() -> None:
    for releases in levels_by_release.RELEASES:
        first = levels_by_release.levels_of(releases[0])
        assert first
        for release in releases:
            assert levels_by_release.levels_of(release) == first, release
            assert levels_by_release.unlisted(release) == levels_by_release.unlisted(releases[0])
        for (kind, code), (_, today) in first.items():
            assert levels_by_release.level_today(kind, code) == today, code
        unlisted = levels_by_release.unlisted(releases[0])
        assert unlisted.isdisjoint(code for _, code in first)
        assert unlisted <= shipped().chip_levels.keys()


def test_the_numbers_of_unlisted_codes_are_those_of_the_specification() -> None:
    text = levels_by_release.DOCUMENT.read_text(encoding="utf-8").replace("\n", " ")
    missing = [levels_by_release.not_listed(names[0]) for names in levels_by_release.RELEASES]
    v72, v73, v26 = (one["chip"] for one in missing)
    assert f"{v72} in v7.2.RC1, {v73} in v7.3, and {v26} in v26.0" in text
    assert all((one["node"], one["public"]) == (5, 9) for one in missing)
    assert "five codes of the server and nine public codes" in text
