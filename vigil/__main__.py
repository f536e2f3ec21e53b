"""``python -m vigil`` is ``vigil``."""

from vigil.main import main

main()
