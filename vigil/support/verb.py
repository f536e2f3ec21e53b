"""``vigil support``: one archive for whoever looks at a failure from afar."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vigil.options import Config, takes_login
from vigil.sources import options  # noqa: TC001  (typer reads it)


@takes_login
def support(
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The archive to write (tar.gz).",
            show_default="vigil-support-TIME.tar.gz in this directory",
        ),
    ] = None,
    redact: Annotated[
        bool,
        typer.Option(
            "--redact",
            help="Replace names of nodes, pods and namespaces, addresses and serial numbers.",
        ),
    ] = False,
    server: options.Server = None,
    state_dir: options.StateDir = None,
    kubeconfig: options.Kubeconfig = None,
    store: options.Store = None,
    config: Config = None,
    as_json: options.Json = False,
) -> None:
    """Write one archive of at most 20 MB about a failure. Nothing is sent anywhere.

    It has versions, configuration, status, faults, documents, journal, timeline, metrics, logs and
    rights, without secrets. Its manifest lists what is missing and why.

    Exit status: 0 done, 1 something is missing or cut, 2 wrong use, 3 it cannot be written.
    """
    import logging
    import sys
    import time

    from contract.errors import printable
    from contract.sentences import message, sentence
    from vigil.exit_status import ExitStatus, print_refusal
    from vigil.language import shown, translated
    from vigil.reports.show import print_json, print_lines
    from vigil.support.place import place_of
    from vigil.support.run import write_archive

    # The archive has what fails; lines of the parts in use would only repeat it.
    logging.disable(logging.CRITICAL)
    name = time.strftime("vigil-support-%Y%m%dT%H%M%SZ.tar.gz", time.gmtime())
    file = Path(name) if output is None else output
    place = place_of(server, state_dir, kubeconfig, store, config)
    try:
        manifest = write_archive(place, file, redact=redact)
    except OSError as error:
        text = sentence(
            "{file} cannot be written: {reason}; nothing is left of it. Name another place with "
            "--output",
            file=file,
            reason=error.strerror or error,
        )
        sys.exit(print_refusal(printable(f"vigil: {shown(text)}"), ExitStatus.OUTSIDE))
    heads = {"partial": message("{part}: partial"), "missing": message("{part}: missing")}
    lacks = [part for part in manifest.parts if part.state in heads]
    if as_json:
        import msgspec

        print_json({"file": str(file), **msgspec.to_builtins(manifest)})
    else:
        print_lines(
            [
                translated("{file}: {size} bytes", file=file, size=file.stat().st_size),
                # Problems and cuts are English, as in the manifest.
                *(
                    f"{translated(heads[part.state], part=part.part)}: {part.problem}"
                    for part in lacks
                ),
                *(f"{translated('cut')}: {text}" for text in manifest.cut),
                translated(
                    "Look at the archive before you give it away: MANIFEST.txt lists its files."
                ),
            ]
        )
    if lacks or manifest.cut:
        sys.exit(ExitStatus.NOT_WELL)
