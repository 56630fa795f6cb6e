"""Looks at the neighbourhood now and then, in a thread of its own, for at most a share of the time."""

from __future__ import annotations

import threading
from time import perf_counter

from .device import Neighbourhood, Reading

SHARE = 1 / 64  # of the time that looking may take: 1.6 %


class Sampler:
    """`readings` every `interval` seconds, or less often where a reading takes long. `cost`: seconds that all of them took."""

    def __init__(self, neighbourhood: Neighbourhood, interval: float) -> None:
        self.neighbourhood, self.interval = neighbourhood, interval
        self.readings: list[Reading] = []
        self.cost = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpuad-profile", daemon=True)

    def start(self) -> None:
        """Begins to look."""
        self._look()
        self._thread.start()

    def stop(self) -> None:
        """Looks once more and ends."""
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
