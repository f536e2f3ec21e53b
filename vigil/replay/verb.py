"""``vigil replay``: a node's journal, played through another fault configuration."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003  (typer reads it)
from pathlib import Path
from typing import Annotated

import typer

from vigil import options  # noqa: TC001  (typer reads it)
from vigil.exit_status import ExitStatus

_TIMES = ["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"]


def replay(
    state_dir: Annotated[
        Path,
        typer.Option(
            metavar="DIR", envvar="VIGIL_STATE_DIR", help="Of the agent; its journal is read."
        ),
    ] = Path("/var/lib/npu-vigil"),
    journal: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The journal itself, or a copy.", show_default=False),
    ] = None,
    fault_config: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH",
            help="faultCode.json, faultCustomization.json, SwitchFaultCode.json, "
            "NodeDConfiguration.json, a directory with them or a file with a ConfigMap; "
            "repeatable. What is not given is as shipped. "
            "Without it: check that the journal leads to the verdicts that it recorded.",
            show_default=False,
        ),
    ] = None,
    since: Annotated[
        datetime | None, typer.Option(formats=_TIMES, help="Leave out what was before; UTC.")
    ] = None,
    until: Annotated[
        datetime | None, typer.Option(formats=_TIMES, help="Leave out what was from then on; UTC.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Play a journal again and show what other rules would have done, per chip and day.

    Exit status: 0 done, 1 the recorded verdicts are not reproduced, 2 wrong use or configuration,
    3 the journal cannot be read.
    """
    import sys
    from datetime import UTC

    import msgspec

    from agent.journal.file import FILE_NAME
    from agent.journal.reader import read_rows
    from agent.replay.level_history import Span
    from agent.replay.replay import replay as play
    from contract.errors import JournalError
    from contract.operator_rules.fault_configuration import catalogue_of
    from contract.sentences import english
    from vigil.file_checks import read_fault_files
    from vigil.replay.table import print_findings

    def epoch_ms(time: datetime | None) -> int | None:
        return None if time is None else int(time.replace(tzinfo=UTC).timestamp() * 1000)

    other = None
    if fault_config:
        texts, problems = read_fault_files(fault_config)
        other = catalogue_of(texts)
        for problem in problems:
            print(f"vigil: {problem}", file=sys.stderr)
    file = state_dir / FILE_NAME if journal is None else journal
    try:
        findings = play(read_rows(file), other, Span(epoch_ms(since), epoch_ms(until)))
    except JournalError as error:
        print(f"vigil: {error}", file=sys.stderr)
        raise typer.Exit(ExitStatus.OUTSIDE) from None
    if as_json:
        sys.stdout.buffer.write(
            msgspec.json.format(msgspec.json.encode(findings, enc_hook=english)) + b"\n"
        )
    else:
        print_findings(findings, compared=other is not None)
    raise typer.Exit(ExitStatus.NOT_WELL if findings.deviation_count else 0)
