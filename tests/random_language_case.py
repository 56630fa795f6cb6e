"""A kernel of `random_language` with its arguments. Vectors, complex numbers and structs of reals are views of plain arrays, so that the
state and its shadows are vectors of numbers like the others; the table of the module gets its shadow through the kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from random_cuda_checks import Case, Vector
from random_language import COEF, Whole

import gpuad

PART = 4  # reals of a Part


@dataclass
class WholeCase(Case):
    @classmethod
    def of(cls, kernel: Whole) -> WholeCase:  # type: ignore[override]
        case = super().of(kernel)
        assert isinstance(case, WholeCase)
        n, dtype = kernel.n, np.asarray(case.start["x"]).dtype
        sizes = {"pv": 2 * n, "zc": 2 * n, "part": PART * n, "mx": n, "coef": COEF}
        known = {*case.order, "coef"} if "constant" in kernel.features and _reaches(case.compiled, "coef") else set(case.order)
        case.start.update({k: case.rng.uniform(-1.2, 1.2, size).astype(dtype) for k, size in sizes.items() if k in known})
        case.fixed.update(top=np.zeros(8, np.int32), hf=case.rng.uniform(-1, 1, n).astype(np.float16))
        case.fixed.update(bf=case.rng.uniform(-1, 1, n).astype(ml_dtypes.bfloat16))
        return case

    def view(self, name: str, memory: Vector) -> Any:
        whole = super().view(name, memory)
        if whole is None or name not in ("pv", "zc", "part"):
            return whole
        match name:
            case "pv":
                return whole.reshape(-1, 2)
            case "zc":
                return whole.view(np.complex128 if whole.dtype == np.float64 else np.complex64)
        return whole.view(np.dtype([("a", whole.dtype), ("w", whole.dtype, (3,))]))

    def launch(self, run: Callable[[tuple[Any, ...]], None], shadows: Vector | None, moved: Vector | None = None) -> Vector:
        state = moved or self.start
        if "coef" in state:
            self.compiled.get_global("coef")[...] = state["coef"]
        return super().launch(run, shadows, moved)

    def derivative(self, given: Vector, mode: Any, moved: Vector | None = None) -> Vector:
        k = self.kernel
        shadows = {name: np.array(v) for name, v in given.items()}
        kernel = self.compiled.with_shadow("coef", shadows["coef"]) if "coef" in shadows else self.compiled
        self.left = self.launch(lambda args: gpuad.autodiff(kernel, k.grid, k.threads, args, mode=mode), shadows, moved)
        return shadows

    def in_hvp(self, vector: Vector) -> Vector:
        """A variable of the module has no direction."""
        return {name: v for name, v in vector.items() if name != "coef"}


def _reaches(kernel: Any, name: str) -> bool:
    return any(g.name == name for g in kernel.function.globals)
