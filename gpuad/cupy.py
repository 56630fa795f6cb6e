"""CuPy's names, for programs that are differentiated as they are: `import gpuad.cupy as cp`. ImportError where there is no CuPy."""

from __future__ import annotations

import sys

from .namespaces.names import Namespace
from .runtime.cuda import library

vars(sys.modules[__name__]).update(_library=library(), _room="", _top=library(), _whole=sys.modules[__name__], __path__=[])
sys.modules[__name__].__class__ = Namespace
