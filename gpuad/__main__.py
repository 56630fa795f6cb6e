"""`python -m gpuad`: the same as the command `gpuad`."""

from .cli import main

main()
