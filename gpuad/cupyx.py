"""The names of CuPy's `cupyx`, for programs that are differentiated as they are: `import gpuad.cupyx.scipy.fft as fft`."""

from __future__ import annotations

import sys

from . import cupy
from .namespaces.names import Namespace
from .runtime.cuda import library

vars(sys.modules[__name__]).update(_library=library("cupyx"), _room="", _top=library(), _whole=cupy, __path__=[])
sys.modules[__name__].__class__ = Namespace
