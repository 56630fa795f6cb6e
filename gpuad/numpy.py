"""NumPy's names, for programs that are differentiated as they are: `import gpuad.numpy as np`."""

from __future__ import annotations

import sys

import numpy

from .namespaces.names import Namespace

vars(sys.modules[__name__]).update(_library=numpy, _room="", _top=numpy, _whole=sys.modules[__name__], __path__=[])
sys.modules[__name__].__class__ = Namespace
