"""The lane with Volcano's real job controller: ``make test-volcano``."""
