"""Recordings of the real aggregator, played through ours: the same bytes but for the rows here."""

from __future__ import annotations

import pytest

from tests.aggregator.replay import Difference, play
from tests.vectors import VECTORS

NODE1 = "$.cluster-info-device-0.mindx-dl-deviceinfo-n1"
NODE2 = "$.cluster-info-device-0.mindx-dl-deviceinfo-n2"
NODE3 = "$.cluster-info-device-0.mindx-dl-deviceinfo-n3"
FREE = "DeviceList.huawei.com/Ascend910"


def _names(*chips: int) -> str:
    return '"' + ",".join(f"Ascend910-{chip}" for chip in chips) + '"'


EIGHT = _names(0, 1, 2, 3, 4, 5, 6, 7)
SEVEN = _names(0, 1, 2, 4, 5, 6, 7)


def _missed(where: str) -> list[tuple[str, str, str, str]]:
    """The first valid document after a refused one, which upstream misses."""
    return [
        (where, f"{NODE1}.{FREE}", EIGHT, SEVEN),
        (where, f"{NODE1}.{FREE}-Fault[0]", "(absent)", "(present)"),
        (where, f"{NODE1}.{FREE}-Unhealthy", '""', '"Ascend910-3"'),
        (where, f"{NODE1}.UpdateTime", "1760000000", "1760000010"),
    ]


# recording@step in ms, path, upstream's value, ours; by the defect that is not copied. A deleted
# node is shown healthy for a touch period (M9) where upstream leaves it out at once.
ROWS: dict[str, list[tuple[str, str, str, str]]] = {
    "B1": [
        ("device-key-missing-or-empty@20545", NODE2, "(absent)", "(present)"),
        *_missed("malformed-device-json@11520"),
        *_missed("wrong-check-code@11515"),
        ("wrong-check-code@15520", f"{NODE1}.UpdateTime", "1760000015", "1760000010"),
    ],
    "B3": [("time-only-updates@20531", f"{NODE1}.UpdateTime", "1760000100", "1760000181")],
    "B6": [("restart-after-all-inputs-left@13529", NODE1, "(present)", "(absent)")],
    "B39": [
        (
            "unsorted-lists-and-foreign-keys@5515",
            f"{NODE2}.{FREE}",
            '" Ascend910-1,Ascend910-0"',
            _names(0, 1),
        ),
        (
            "unsorted-lists-and-foreign-keys@5515",
            f"{NODE3}.{FREE}",
            '",Ascend910-0,Ascend910-0"',
            _names(0, 0),
        ),
    ],
    "M9": [
        ("input-deleted@8512", NODE1, "(absent)", "(present)"),
        ("input-deleted@11517", NODE1, "(absent)", "(present)"),
        ("input-deleted@11517", NODE2, "(absent)", "(present)"),
    ],
}
RECORDINGS = sorted(
    path.stem for path in (VECTORS / "clusterd").glob("*.json") if path.stem != "examples"
)


@pytest.mark.parametrize("recording", RECORDINGS)
def test_recording(recording: str) -> None:
    expected = {Difference(*row) for rows in ROWS.values() for row in rows}
    assert set(play(recording)) == {
        one for one in expected if one.where.partition("@")[0] == recording
    }


def test_every_row_is_about_a_recording() -> None:
    named = {row[0].partition("@")[0] for rows in ROWS.values() for row in rows}
    assert named <= set(RECORDINGS)
