"""Every finding of ``vigil advise`` is in ``docs/advise.md``."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_SOURCES = ("cluster_cache", "cluster_findings", "device_lists", "job_findings", "motor_checks")
_CODE = re.compile(r'"([A-Z]+(?:_[A-Z]+)+)"')


def test_codes_are_in_the_table() -> None:
    found = {
        code
        for name in (*_SOURCES, "node_view")
        for code in _CODE.findall((ROOT / f"advisor/{name}.py").read_text())
    }
    section = (
        (ROOT / "docs/advise.md").read_text().partition("## Findings")[2].partition("\n## ")[0]
    )
    documented = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", section))
    assert documented == found
    assert len(found) > 25
