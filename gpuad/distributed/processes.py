"""Which processes the ranks are, so that those on this machine can be seen to have ended, and share its cores.

MPI says nothing of a process that was killed: who waits for it waits. A rank therefore tells the others its process once. One that is on
the same machine (and sees the same numbers of processes, which containers need not) is looked up by its number and the time at which it
was started; one that waits to be collected by its parent has ended, too. Of processes on other machines nothing is known here.
"""

from __future__ import annotations

import os
import socket
from functools import cache
from hashlib import blake2b
from pathlib import Path

FIELDS = 4  # numbers that tell a process
Process = tuple[int, int, int, int]  # the machine, the number there, when it was started, which cores it may use


def own() -> Process:
    """This one."""
    pid = os.getpid()
    return _machine(), pid, _started(pid), _cores()


def has_ended(process: Process) -> bool:
    """True if a process of this machine is there no more; False for those of others."""
    machine, pid, started, _ = process
    if machine != _machine():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:  # of another user
        return False
    now = _started(pid)
    return now < 0 or (0 < started != now > 0)


def on_these_cores(processes: list[Process]) -> int:
    """How many of them are on this process's machine and may use just its cores; those that were bound to others do not count."""
    machine, _, _, cores = own()
    return sum((process[0], process[3]) == (machine, cores) for process in processes)


def _cores() -> int:
    return _number(sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else "all")


@cache
def _machine() -> int:
    try:
        numbers = os.readlink("/proc/self/ns/pid")
    except OSError:
        numbers = ""
    return _number(f"{socket.gethostname()} {numbers}")


def _number(what: object) -> int:
    return int.from_bytes(blake2b(str(what).encode(), digest_size=7).digest(), "little")


def _started(pid: int) -> int:
    """When a process was started, in the clock ticks of Linux; -1 if it has ended, 0 where that is not known."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return -1 if state in "ZX" else int(fields[18])  # proc(5): the 22nd field, of which two precede the state
