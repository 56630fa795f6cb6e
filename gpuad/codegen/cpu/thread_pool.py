"""How launches are shared out to the cores of a CPU, and how a text for the CPU begins: with a thread pool of its own, or without one.

`tasks.hpp`: a launch in parts. The pool is a library of its own, of whose function each kernel's library is told when it is loaded: so all
have the same threads, and none has to compile them.

`threads.hpp`: threads that stay from one launch to the next, since starting one takes longer than many a kernel does. A launch comes in
parts, and each thread has a lane of them, the same in each launch: so it finds in its own cache what it wrote the last time. Who is done
with his lane takes parts of the others. Launches have numbers that only grow, and a lane says up to which part of which launch it has been
taken. So a thread that comes late finds nothing to do in a launch that is over, and need not be waited for.

`batch.hpp`: several launches, copies and clearings in one call, gone through by all threads on their own, which meet after each: nobody has
to be told of the next one. A launch with sums is led by one thread: only that one adds up what the others have left. A thread that comes
late still reads the list, so the call ends when all who have joined it have left.
"""

from __future__ import annotations

from .helpers import PRELUDE
from .include_text import text

_COMMON = PRELUDE.lstrip("\n") + "\n" + text("tasks.hpp")
_SHARED_OUT_BY = "\nint (*gpuad_shared_out_by)(gpuad_task*, int, int) = {};\n"

WITHOUT_CREW = _COMMON + _SHARED_OUT_BY.format("nullptr")
WITH_CREW = (
    text("includes.hpp") + _COMMON + "\n" + text("threads.hpp") + "\n" + text("batch.hpp") + _SHARED_OUT_BY.format("gpuad_share_out")
)
CREW = WITH_CREW + "}  // namespace\n"  # the library that lends its threads to all others of a process
