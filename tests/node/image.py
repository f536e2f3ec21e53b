"""The images of a node: ours, built by buildah from daemonset/Dockerfile, and the one that pauses.

The base is a Debian with Python, made by ``tests/setup.sh node``: no registry is needed.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.parts.processes import PartFailed, cache_folders, program

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
_BASE = "localhost/base:bookworm"
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_IN_FILES = """
mount --rbind /dev "$0/dev" && mount -t proc proc "$0/proc" || exit
exec chroot --userspec=9820:9820 "$0" "$@"
"""
_PAUSE = "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n"


class Images:
    """Images in a storage of their own below ``directory``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def build(self, *names: str) -> None:
        """Build the Dockerfile once, under each of these names; raises ``PartFailed``."""
        usual, other = (folder / "base-bookworm-2.tar" for folder in cache_folders())
        self._from_files(_BASE, usual if usual.is_file() else other, ())
        options = ["--isolation=chroot", "--network=host", f"--build-arg=BASE={_BASE}"]
        # What this machine trusts, the package index of the build must be able to show.
        options += [f"--volume={_CERTIFICATES}:{_CERTIFICATES}:ro", "--quiet"]
        file = ROOT / "daemonset/Dockerfile"
        self._buildah("bud", *options, f"--file={file}", f"--tag={names[0]}", ROOT)
        for name in names[1:]:
            self._buildah("tag", names[0], name)

    def build_pause(self, name: str) -> None:
        """Build the image of a pod's sandbox; raises ``PartFailed``."""
        source = self.directory / "pause.c"
        source.write_text(_PAUSE)
        compiled = self.directory / "pause"
        _run([program("gcc"), "-static", "-O1", "-s", "-o", compiled, source])
        self._from_files(name, compiled, ('--entrypoint=["/pause"]',))

    def archive(self, name: str) -> Path:
        """Write an image as containerd takes it in; the file. Raises ``PartFailed``."""
        file = self.directory / f"{name.replace(':', '-')}.tar"
        self._buildah("push", "--quiet", name, f"docker-archive:{file}:{name}")
        return file

    def pull(self, archive: Path) -> str:
        """Take in an OCI archive; return the image's id. Raises ``PartFailed``."""
        return self._buildah("pull", "--quiet", f"oci-archive:{archive}")

    def settings(self, name: str) -> dict[str, Any]:
        """Return the configuration of an image (OCI image-spec)."""
        settings: dict[str, Any] = json.loads(self._buildah("inspect", name))["OCIv1"]
        return settings

    def size(self, name: str) -> int:
        """Return the size of the files that an image has above its base (bytes)."""
        container = self._buildah("from", name)
        try:
            mounted = Path(self._buildah("mount", container))
            paths = [mounted / "opt/npu-vigil"]
            return sum(
                file.lstat().st_size for path in paths for file in path.rglob("*") if file.is_file()
            )
        finally:
            self._buildah("rm", container)

    def run(self, name: str, *command: str) -> tuple[int, str]:
        """Run a command as the image's user, on its files; exit status and what it printed.

        Not by ``buildah run``, which loses output while the machine is busy.
        """
        container = self._buildah("from", name)
        try:
            files = self._buildah("mount", container)
            done = subprocess.run(
                ["unshare", "--mount", "sh", "-c", _IN_FILES, files, *command],
                capture_output=True,
                text=True,
                check=False,
            )
            return done.returncode, done.stdout + done.stderr
        finally:
            self._buildah("rm", container)

    def _from_files(self, name: str, content: Path, settings: Sequence[str]) -> None:
        container = self._buildah("from", "scratch")
        try:
            self._buildah("add", "--quiet", container, content, "/")
            if settings:
                self._buildah("config", *settings, container)
            self._buildah("commit", "--quiet", container, name)
        finally:
            self._buildah("rm", container)

    def _buildah(self, *arguments: str | Path) -> str:
        storage = [f"--root={self.directory / 'images'}", f"--runroot={self.directory / 'run'}"]
        return _run([program("buildah"), *storage, "--storage-driver=overlay", *arguments])


def _run(command: Sequence[str | Path]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PartFailed(f"{command[0]}: {done.stderr[-3000:]}")
    return done.stdout.strip()
