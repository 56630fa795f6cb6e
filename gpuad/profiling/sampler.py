"""Samples the process and the device at intervals, in a thread of its own, for at most a share of the time.

In: what can be read on this machine (`device.Neighbourhood`), and an interval in seconds. Out: `readings` in order of time, the first on
start and the last on stop, and `cost`, the seconds that all of them took. The pause after a reading is at least 64 times as long as the
reading took, so sampling takes at most 1.6 % of the time. A peak between two readings is not seen. The thread is a daemon and ends on
`stop`."""

from __future__ import annotations

import threading
from time import perf_counter

from .device import Neighbourhood, Reading

SHARE = 1 / 64  # of the time that readings may take: 1.6 %


class Sampler:
    """`readings` every `interval` seconds, or less often where a reading takes long. `cost`: seconds that all of them took."""

    def __init__(self, neighbourhood: Neighbourhood, interval: float) -> None:
        self.neighbourhood, self.interval = neighbourhood, interval
        self.readings: list[Reading] = []
        self.cost = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpuad-profile", daemon=True)

    def start(self) -> None:
        """Takes the first reading and starts the thread."""
        self._look()
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread and takes the last reading."""
        self._stop.set()
        self._thread.join()
        self._look()

    def _look(self) -> float:
        begin = perf_counter()
        self.readings.append(self.neighbourhood.read(begin))
        took = perf_counter() - begin
        self.cost += took
        return took

    def _run(self) -> None:
        pause = self.interval
        while not self._stop.wait(pause):
            pause = max(self.interval, self._look() / SHARE)


__all__ = ["Sampler"]
