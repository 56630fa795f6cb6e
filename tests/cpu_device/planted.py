"""A plugin for pytest, `-p planted`: the module through which gpuad calls CuPy, with the fault that GPUAD_PLANTED names."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec, module_from_spec

# name: what stands there, what stands there instead, and the tests that should find it
_COPIES = "tape or values or store or copies or waits"
_JOINED = "follow(self.stream, self.cupy.cuda.get_current_stream())\n        "
_CONTEXT = 'stream if hasattr(stream, "__enter__") else cupy.cuda.ExternalStream(stream.ptr)'
_ARRIVED = "cupy.cuda.get_current_stream().synchronize()\n    return array"
FAULTS = {
    "an offset in elements for one in bytes": ("arg.offset * dtype.itemsize", "arg.offset", "view or halves"),
    "a stream that is not made the current one": (_CONTEXT, "nullcontext()", "stream"),
    "a wait for another stream that is forgotten": ("stream.wait_event(other.record())", "other.record()", "stream"),
    "a copy to pinned memory before it is computed": (_JOINED + "data.get", "data.get", _COPIES),
    "a copy from pinned memory into memory that is still read": (_JOINED + "data.set", "data.set", _COPIES),
    "nobody waits for copies": ("follow(self.cupy.cuda.get_current_stream(), self.stream)", "pass", _COPIES),
    "an array that has not arrived": (_ARRIVED, "return array", "arrays_behind or stream or turns"),
    "shared memory that is too small": ("shared = max(shared_mem, dynamic_bytes(fitting.kernel))", "shared = shared_mem", "shared"),
    "a copy that is none": ("return array.copy()", "return array", "tape or graph or changes"),
    "memory that is not cleared": ("return cupy.zeros(length, dtype)", "return cupy.empty(length, dtype)", "check"),
    "more shared memory that is not asked for": ("function.max_dynamic_shared_size_bytes = shared_mem", "pass", "large_shared"),
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
