"""What ``vigil status`` and ``vigil faults`` are made of."""
