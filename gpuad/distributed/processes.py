"""Which processes the ranks are, so that those on this machine can be seen to have ended.

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

FIELDS = 3  # numbers that tell a process
Process = tuple[int, int, int]  # the machine, the number there, when it was started


def own() -> Process:
    """This one."""
    pid = os.getpid()
    return _machine(), pid, _started(pid)


def has_ended(process: Process) -> bool:
    """Whether a process of this machine is there no more; False for those of others."""
    machine, pid, started = process
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


@cache
def _machine() -> int:
    try:
        numbers = os.readlink("/proc/self/ns/pid")
    except OSError:
        numbers = ""
    return int.from_bytes(blake2b(f"{socket.gethostname()} {numbers}".encode(), digest_size=7).digest(), "little")


def _started(pid: int) -> int:
    """When a process was started, in the clock ticks of Linux; -1 if it has ended, 0 where that is not known."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return -1 if state in "ZX" else int(fields[18])  # proc(5): the 22nd field, of which two precede the state
