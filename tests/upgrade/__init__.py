"""Today's agents and aggregator go on with what an earlier release kept.

``site.py`` has the stores and daemons, ``python -m tests.upgrade.keep`` makes a new archive, and
``real_*.py`` are of ``make test-release``.
"""
