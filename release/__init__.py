"""Makes what a release has: wheel, sdist, chart, bundle, packages, SBOM, manifest and statement.

It is not part of the wheel. ``python -m release`` has the commands; ``docs/release.md`` explains
them.
"""
