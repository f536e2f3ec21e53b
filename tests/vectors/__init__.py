"""Facts observed on the programs that NPU Vigil stands in for."""

from pathlib import Path

VECTORS = Path(__file__).parent
