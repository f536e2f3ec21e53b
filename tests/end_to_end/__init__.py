"""Real processes: vigil agent on the emulated driver, with real stores."""
