"""``vigil lint``: whether jobs will survive a fault, judged from their files."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  (typer reads it)
from typing import Annotated

import typer


def lint(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE|DIRECTORY|-", help="What to judge, as one set."),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Judge what runs in the cluster, too.")
    ] = False,
    kubeconfig: Annotated[
        Path | None, typer.Option(metavar="FILE", help="How to reach the cluster of --live.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one finding a line, as JSON.")
    ] = False,
    form: Annotated[
        str, typer.Option("--format", help="text, json, github or sarif.", metavar="FORMAT")
    ] = "text",
    strict: Annotated[
        bool, typer.Option("--strict", help="End with 1 for a warning too; an info never counts.")
    ] = False,
) -> None:
    """Judge manifests before they are applied: what will happen at the first fault, and what to
    write instead.

    Exit status: 0 no error, 1 an error was found, 2 a file cannot be used, 3 the cluster cannot be
    used.
    """
    import gc
    import sys

    from contract.errors import ConfigurationError, Problem
    from contract.sentences import joined, sentence
    from vigil.lint.printing import Format, lines, summary
    from vigil.lint.reading import files as read
    from vigil.lint.run import lint as judge

    if form not in list(Format):
        text = sentence(
            "{value} is none of {values}",
            value=repr(form),
            values=joined("{before}, {part}", Format),
        )
        raise ConfigurationError("command line", [Problem("--format", text)])
    if not files and not live:
        text = sentence("is missing; give files, a directory or - for standard input, or --live")
        raise ConfigurationError("command line", [Problem("FILE", text)])
    # Reference counts free what was read; looking for cycles in what is kept costs a tenth more.
    gc.disable()
    chosen = Format.JSON if as_json else Format(form)
    if live:
        from vigil.lint.live import judge_live

        report = judge_live(read(files or ()), kubeconfig)
    else:
        report = judge(read(files or ()))
    output = "".join(f"{line}\n" for line in lines(report, chosen))
    if chosen is Format.TEXT:
        # The terminal may lack letters of a translation or of names.
        text = f"{output}{summary(report)}\n"
        sys.stdout.buffer.write(text.encode(sys.stdout.encoding or "ascii", "replace"))
    else:
        # Names of files that are not UTF-8 have surrogates, which cannot be encoded.
        sys.stdout.buffer.write(output.encode("utf-8", "backslashreplace"))
        # Programs read these formats, in which a line for people would be an error.
        print(summary(report), file=sys.stderr)
    sys.stdout.flush()
    sys.exit(report.exit_status(strict=strict))
