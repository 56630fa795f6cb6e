"""A plugin for pytest, `-p planted`: the module through which gpuad calls CuPy, with the fault that GPUAD_PLANTED names."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec, module_from_spec

# name: what stands there, what stands there instead, and the tests that should find it
_CONTEXT = 'stream if hasattr(stream, "__enter__") else cupy.cuda.ExternalStream(stream.ptr)'
FAULTS = {
    "an offset in elements for one in bytes": ("arg.offset * dtype.itemsize", "arg.offset", "view or halves"),
    "a stream that is not made the current one": (_CONTEXT, "nullcontext()", "stream"),
    "a wait for another stream that is forgotten": ("stream.wait_event(other.record())", "other.record()", "stream"),
    "memory that is not cleared": ("return cupy.zeros(length, dtype)", "return cupy.empty(length, dtype)", "check"),
}
MODULE = "gpuad.runtime.cuda"


def plant(name: str) -> None:
    """Loads the module with the fault in it."""
    old, new, _ = FAULTS[name]
    spec = find_spec(MODULE)
    assert spec is not None and spec.origin is not None
    with open(spec.origin, encoding="utf-8") as file:
        text = file.read()
    assert text.count(old) == 1, f"{name}: {old!r} stands there {text.count(old)} times"
    module = module_from_spec(spec)
    sys.modules[MODULE] = module
    exec(compile(text.replace(old, new), spec.origin, "exec"), module.__dict__)


if os.environ.get("GPUAD_PLANTED"):
    plant(os.environ["GPUAD_PLANTED"])
