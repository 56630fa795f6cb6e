"""Kernels of `kernels/` as functions of a framework, in double precision, at the sizes that their headers give.

What is differentiated is what the header calls active. A framework's own checker compares gradient and tangent with differences of the
launch, so the kernels here are smooth where their headers put them, and compute nothing in single precision whatever their types are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from launch_tools import CASES

import gpuad
from gpuad import api
from gpuad.ir.types import Pointer
from gpuad.tools.cases import Case, parameter_types

TWENTY = (
    "adam", "advection-advect_float_Limiter_VanLeer", "black_scholes-black_scholes_erf", "block_scan-scan", "brownian-dropout",
    "convolution-convolve_channels", "fdtd-update_e", "fdtd-update_h", "fisher_kpp", "gemm", "heat", "kepler-eccentric_anomaly",
    "local_volatility", "nbody-move", "recurrence-cumulative_product", "recurrence-iir", "recurrence-logistic_map",
    "red_black", "relu_bias", "wave",
)  # fmt: skip
SIZES: dict[str, dict[str, int]] = {}


@dataclass(frozen=True, eq=False)
class Described:
    """A launch: the kernel, its geometry, its arguments (arrays and Python's numbers) by name, the names of those to be differentiated."""

    kernel: Any
    grid: Any
    block: Any
    shared_mem: int
    arguments: dict[str, Any]
    active: tuple[str, ...]


@cache
def _kernel(name: str) -> tuple[Case, Any]:
    case = CASES[name]
    return case, gpuad.kernel(case.file.text, case.kernel, options=("-Dfloat=double",))


def described(name: str) -> Described:
    """A case, with arrays of its own."""
    case, kernel = _kernel(name)
    sizes = SIZES.get(name)
    grid, block, shared_mem = case.geometry(sizes)
    primal = api.kernel(kernel).suited(None, 2 * shared_mem).primal()
    values = case.arrays(parameter_types(primal), 1, sizes)
    arguments = {d.name: values[d.name] if isinstance(d.type, Pointer) else values[d.name].item() for d in kernel.parameters}
    assert all(not isinstance(x, np.ndarray) or x.dtype != np.float32 for x in arguments.values())
    return Described(kernel, grid, block, 2 * shared_mem, arguments, case.active)
