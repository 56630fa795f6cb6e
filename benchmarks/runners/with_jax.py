"""JAX: a pure function, compiled as a whole."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..problem import Arrays, Missing, Record, Size


class Jax:
    """The output, and the output with the product of the transposed Jacobian and the seed."""

    def __init__(self, problem: Any, size: Size, given: Arrays, place: str) -> None:
        import jax

        try:
            device = jax.devices(place)[0]
        except RuntimeError:
            raise Missing(f"jax has no {place}") from None
        self.jax, self.device = jax, device
        put = {name: jax.device_put(array, device) for name, array in given.items()}
        self.inputs = {n: put[n] for n in problem.active}, {n: a for n, a in put.items() if n not in problem.active}

        def output(active: Any, rest: Any) -> Any:
            return problem.jax(jax, size, {**active, **rest})

        def gradient(active: Any, rest: Any) -> Any:
            out, pull = jax.vjp(lambda given: output(given, rest), active)
            return out, pull(rest["seed"])[0]

        self.compiled = jax.jit(output).lower(*self.inputs).compile()
        self.reverse = jax.jit(gradient).lower(*self.inputs).compile()
        self.last: Any = None

    def prepare(self) -> None:
        self.last = None

    def primal(self) -> Any:
        return self.jax.block_until_ready(self.compiled(*self.inputs))

    def gradient(self) -> None:
        self.last = self.jax.block_until_ready(self.reverse(*self.inputs))[1]

    def memory(self) -> int:
        """Bytes that were in use at most on a device."""
        return int((self.device.memory_stats() or {}).get("peak_bytes_in_use", 0))

    def found(self) -> Arrays:
        return {name: np.asarray(value) for name, value in self.last.items()}

    def about(self) -> Record:
        """The bytes that the compiled program takes beside its arguments and results."""
        return {"saved_bytes": int(self.reverse.memory_analysis().temp_size_in_bytes)}
