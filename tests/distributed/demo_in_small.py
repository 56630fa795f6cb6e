"""The command `gpuad demo` on each rank, on a small plate: `demo_in_small.py PICTURE`. First a program that is not for several."""

from __future__ import annotations

import sys
from functools import partial

import pytest

from gpuad.tools.cli import app
from gpuad.tools.demo import wave

wave.Setting = partial(wave.Setting, n=40, steps=70, shots=3, receivers=9, sponge=4, period=12.0)  # type: ignore[assignment, misc]
with pytest.raises(SystemExit) as refused:
    app(["demo", "--program", "gray-scott", "-o", sys.argv[1]])
assert refused.value.code == 1
app(["demo", "--program", "wave", "--iterations", "1", "-o", sys.argv[1]])
