"""``python -m release``: builds a release or a bundle of the current commit, or verifies one.

    python -m release build VERSION [--output DIR] [--key FILE] [--target PROCESSOR:PYTHON]...
    python -m release bundle PROCESSOR:PYTHON [--output DIR] [--key FILE]
    python -m release verify DIR VERSION --signers FILE
    python -m release advisories [--osv-url URL]

Exit status: 0 done, 1 refused or an open advisory, 2 wrong use, 3 advisories that are not known.
Nothing is uploaded.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from release.advisories import NOT_KNOWN, STATEMENTS_NAME, NoResultError, audit, judge
from release.build import LOCK_NAME, Source, Target, build_bundle, build_python, build_release
from release.bundle import ARCHITECTURES, PYTHONS, UnsuitableError
from release.image import IMAGE_PYTHON, ImageError, base_root
from release.manifest import RefusedError, verify
from release.packages import PackagerError, packager
from release.sbom import PRODUCT

if TYPE_CHECKING:
    from collections.abc import Sequence

_ROOT = Path(__file__).parents[1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="build a release of the current commit")
    build.add_argument("version")
    build.add_argument(
        "--target", action="append", type=_target, default=[], metavar="PROCESSOR:PYTHON"
    )
    bundle = commands.add_parser("bundle", help="build the bundle for a processor and a Python")
    bundle.add_argument("target", type=_target, metavar="PROCESSOR:PYTHON")
    for command in (build, bundle):
        command.add_argument("--output", type=Path, default=Path("dist"))
        command.add_argument("--key", type=Path, help="OpenSSH private key that signs the manifest")
    check = commands.add_parser("verify", help="verify the files of a release")
    check.add_argument("folder", type=Path)
    check.add_argument("version")
    check.add_argument("--signers", type=Path, required=True, help="file of allowed signers")
    advisories = commands.add_parser("advisories", help="check the lock for known advisories")
    advisories.add_argument("--osv-url", help="service instead of the package index")
    options = parser.parse_args(arguments)
    try:
        if options.command == "advisories":
            dependencies = audit(_ROOT / LOCK_NAME, options.osv_url)
            outcome = judge(dependencies, (_ROOT / STATEMENTS_NAME).read_bytes())
            print("\n".join(outcome.lines))
            return outcome.status
        if options.command == "verify":
            number = verify(options.folder, f"{PRODUCT} {options.version}", options.signers)
            print(f"{number} files are those of {PRODUCT} {options.version}")
        else:
            _build(options)
    except NoResultError as error:
        print(f"release: {error}", file=sys.stderr)
        return NOT_KNOWN
    except (ImageError, PackagerError, RefusedError, UnsuitableError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


def _target(text: str) -> Target:
    target = Target(*text.partition(":")[::2])
    if target.architecture not in ARCHITECTURES or target.python not in PYTHONS:
        expected = f"{' or '.join(ARCHITECTURES)}, a colon, and one of {', '.join(PYTHONS)}"
        raise argparse.ArgumentTypeError(f"{text}: not {expected}")
    return target


def _build(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = _exported(Path(folder))
        output: Path = options.output.absolute()
        output.mkdir(parents=True, exist_ok=True)
        if options.command == "bundle":
            with tempfile.TemporaryDirectory() as built:
                # The wheel is only a part of the bundle, so it does not stay in the output folder.
                wheel = build_python(source, Path(built))
                build_bundle(source, options.target, wheel, output, options.key)
        else:
            _check_version(source, options.version)
            if any(output.iterdir()):
                raise RefusedError(f"{output} is not empty, and a manifest names all of its files")
            packager()
            for target in options.target:
                if target.python == IMAGE_PYTHON:
                    base_root(target.architecture)
            build_release(source, options.target, output, options.key)
        print(f"built in {output}")


def _exported(folder: Path) -> Source:
    """Return the current commit as a tree in ``folder``; refuse where files differ from it."""
    if changed := _git("status", "--porcelain"):
        raise RefusedError(f"a release is of a commit; commit or remove:\n{changed}")
    # An export has committed files alone, and a build may write into it.
    archive = folder / "source.tar"
    _git("archive", "--output", str(archive), "HEAD")
    tree = folder / "tree"
    tree.mkdir()
    subprocess.run(["tar", "-xf", archive, "-C", tree], check=True)
    project = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))
    commit, epoch = _git("log", "-1", "--format=%H %ct").split()
    return Source(tree, project["project"]["version"], commit, int(epoch))


def _check_version(source: Source, version: str) -> None:
    """Refuse a version that the tree does not have everywhere."""
    chart = yaml.safe_load((source.tree / "daemonset" / "chart" / "Chart.yaml").read_text())
    log = (source.tree / "CHANGELOG.md").read_text(encoding="utf-8")
    wrong = [
        f"{name} has {value}"
        for name, value in (
            ("pyproject.toml", source.version),
            # A chart has its own version and that of the image; a release gives both the same.
            ("version of Chart.yaml", chart["version"]),
            ("appVersion of Chart.yaml", chart["appVersion"]),
        )
        if value != version
    ]
    if f"\n## {version}" not in log:
        wrong.append("CHANGELOG.md has no such heading")
    if wrong:
        raise RefusedError(f"{version} is not the version of this commit: {'; '.join(wrong)}")


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=_ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
