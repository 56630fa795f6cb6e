"""Fields that flow, saturate and scatter."""

from pathlib import Path

KERNELS = Path(__file__).parent / "kernels"
