"""How a text for the CPU begins: with a crew of threads of its own, or without one."""

from __future__ import annotations

from .batch import BATCH
from .helpers import PRELUDE
from .tasks import TASKS
from .thread_pool_text import INCLUDES, THREADS

_COMMON = PRELUDE.lstrip("\n") + TASKS
_SHARED_OUT_BY = "\nint (*gpuad_shared_out_by)(gpuad_task*, int, int) = {};\n"

WITHOUT_CREW = _COMMON + _SHARED_OUT_BY.format("nullptr")
WITH_CREW = INCLUDES.lstrip("\n") + _COMMON + THREADS + BATCH + _SHARED_OUT_BY.format("gpuad_share_out")
CREW = WITH_CREW + "}  // namespace\n"  # the library that lends its threads to all others of a process
