"""`python -m gpuad`: the same as the command `gpuad`."""

from .tools.cli import main

main()
