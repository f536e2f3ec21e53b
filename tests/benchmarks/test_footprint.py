"""What is measured of a process, on real ones."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from benchmarks.footprint import (
    Figures,
    Usage,
    between,
    blind,
    family,
    imported,
    is_readable,
    pss_mib,
    usage,
)

if TYPE_CHECKING:
    from pathlib import Path

_TOOL = r"""
import subprocess, sys
print(flush=True)
for line in sys.stdin:
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.2: pass"])
    print(flush=True)
"""


@pytest.mark.slow
def test_a_tool_that_ended_is_counted_apart() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _TOOL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        assert process.pid in family(os.getpid())
        assert 1 < pss_mib([process.pid]) < pss_mib([process.pid, os.getpid()])
        before = usage(process.pid)
        process.stdin.write("go\n")
        process.stdin.flush()
        process.stdout.readline()
        long, short = between(before, usage(process.pid), 1.0)
        process.stdin.close()
    assert 15 < short < 60
    assert long < 10
    assert pss_mib([process.pid]) == 0


@pytest.mark.slow
def test_files_that_both_map_count_once() -> None:
    assert pss_mib([os.getpid()] * 2) < 2 * pss_mib([os.getpid()]) - 1


def test_process_that_began_meanwhile_did_not_live_all_the_time() -> None:
    before = Usage({1: 2.0, 2: 5.0}, 1.0)
    after = Usage({1: 2.5, 3: 0.25}, 1.5)
    assert between(before, after, 10.0) == (5.0, 7.5)


def test_the_budget_is_that_of_an_idle_agent() -> None:
    assert Figures("directory", "idle", 2, 80.0, 0.4, 9.0).is_within_budget
    assert not Figures("directory", "idle", 2, 80.1, 0.4, 0.0).is_within_budget
    assert not Figures("directory", "idle", 2, 80.0, 0.41, 0.0).is_within_budget


def test_imports_are_read_from_the_interpreters_log() -> None:
    log = "import time:       364 |      60304 |   rich.console\nINFO agent.daemon: ready\n"
    assert imported(log) == {"rich"}


def test_a_blind_source_is_found_among_the_metrics() -> None:
    sample = 'npu_vigil_blind{chip="",source="bmc"} 1.0'
    reported = (
        '# TYPE npu_vigil_blind gauge\n{}\nnpu_vigil_blind_since_timestamp_seconds{{chip=""}} 5.0\n'
    )
    assert blind(reported.format(sample)) == [sample]
    assert blind(reported.format("")) == []


def test_whether_a_log_can_be_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    assert not is_readable(pipe)
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR)
    assert is_readable(pipe), "though nothing is in it"
    os.close(writer)
    assert not is_readable(tmp_path)
