"""Start a program that runs as ``python -I -S``, measured.

Called as ``python -I -S isolated.py PACKAGES PROGRAM ARGUMENT...``. The program finds the modules
that it finds without this, except for those of coverage.py, which are loaded already.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path


def main() -> None:
    """Measure and run the program."""
    packages, program = sys.argv[1:3]
    places = [packages, str(Path(__file__).parents[2])]
    before = sys.path[:]
    sys.path += places
    import coverage

    coverage.process_startup()
    sys.path[:] = before
    # A program has its own folder first, which isolated mode leaves out.
    sys.argv = sys.argv[2:]
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
