"""Runs the users' texts of the attack kernels without gpuad: all of them in one C++ file, thread after thread.

Neither the frontend nor any executor takes part, so that a fault of theirs cannot be on both sides of a comparison. CUDA's names are a few
lines of C++; differences are central, in float64.
"""

from __future__ import annotations

import ctypes
import functools
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from attack_cases import CASES, Case

from gpuad.runtime.compiler import find_compiler

SHIM = r"""
#include <algorithm>
#include <cmath>
#include <cstdint>
using namespace std;
struct Dim { unsigned x, y, z; };
struct double2 { double x, y; };
static Dim threadIdx, blockIdx, blockDim, gridDim;
#define __global__
#define __device__
template <class T, class U> static T atomicAdd(T* p, U v) { T old = *p; *p = old + (T)v; return old; }
template <class T, class U> static T atomicMax(T* p, U v) { T old = *p; *p = max(old, (T)v); return old; }
template <class A, class B> static A bits(B b) { A a; __builtin_memcpy(&a, &b, sizeof a); return a; }
static int __float_as_int(float x) { return bits<int>(x); }
static unsigned __float_as_uint(float x) { return bits<unsigned>(x); }
static float __int_as_float(int x) { return bits<float>(x); }
static float __uint_as_float(unsigned x) { return bits<float>(x); }
static long long __double_as_longlong(double x) { return bits<long long>(x); }
static double __longlong_as_double(long long x) { return bits<double>(x); }
static int __double2hiint(double x) { return (int)(bits<long long>(x) >> 32); }
static int __double2loint(double x) { return (int)bits<long long>(x); }
static double __hiloint2double(int hi, int lo) { return bits<double>(((long long)hi << 32) | (unsigned)lo); }
static void __builtin_assume(bool) {}
static double rsqrt(double x) { return 1 / sqrt(x); }
template <class F> static void gpuad_each(const unsigned* g, F body)
{
    gridDim = {g[0], g[1], g[2]};
    blockDim = {g[3], g[4], g[5]};
    for (blockIdx.z = 0; blockIdx.z < g[2]; ++blockIdx.z) for (blockIdx.y = 0; blockIdx.y < g[1]; ++blockIdx.y)
    for (blockIdx.x = 0; blockIdx.x < g[0]; ++blockIdx.x) for (threadIdx.z = 0; threadIdx.z < g[5]; ++threadIdx.z)
    for (threadIdx.y = 0; threadIdx.y < g[4]; ++threadIdx.y) for (threadIdx.x = 0; threadIdx.x < g[3]; ++threadIdx.x) body();
}
"""
FLAGS = ("-O0", "-std=c++17", "-fwrapv", "-ffp-contract=off", "-fpermissive", "-fno-strict-aliasing", "-w", "-shared", "-fPIC")
STEP = 1e-5


def _types(case: Case) -> list[tuple[str, bool]]:
    """Element type and whether it is a pointer, for each parameter."""
    found = []
    params = case.source.split("__global__ void k(")[1].split(")")[0]
    for text in params.split(","):
        words = text.replace("const", "").replace("volatile", "").replace("__restrict__", "").replace("*", " * ").split()
        found.append((" ".join(w for w in words[:-1] if w != "*"), "*" in words))
    return found


def _entry(number: int, case: Case) -> str:
    types = _types(case)
    passed = ", ".join(f"({t}*)a[{i}]" if pointer else f"*({t}*)a[{i}]" for i, (t, pointer) in enumerate(types))
    text = case.source.replace('extern "C"', "")
    return (
        f"namespace attack{number} {{\n{text}\n}}\n"
        f'extern "C" void attack_{number}(void** a, unsigned* g) {{ gpuad_each(g, [&] {{ attack{number}::k({passed}); }}); }}\n'
    )


@functools.cache
def library(folder: Path) -> ctypes.CDLL:
    """All kernels of the table, compiled."""
    source, target = folder / "attacks.cpp", folder / "attacks.so"
    source.write_text(SHIM + "".join(_entry(i, c) for i, c in enumerate(CASES) if not c.refused))
    subprocess.run([*find_compiler().command, *FLAGS, str(source), "-o", str(target)], check=True)
    return ctypes.CDLL(str(target))


_DTYPES = {
    "double": "f8", "float": "f4", "int": "i4", "unsigned": "u4", "long long": "i8", "size_t": "u8", "short": "i2", "unsigned char": "u1",
}  # fmt: skip


@dataclass(frozen=True)
class Oracle:
    """One kernel's launch as a function of its memory."""

    case: Case
    folder: Path

    def run(self, roots: Mapping[str, Any]) -> None:
        """Launches on the arrays in `roots`, in place; numbers are passed by value."""
        held: list[Any] = []
        for (name, pointer), value in zip(_types(self.case), self.case.arguments(roots), strict=True):
            held.append(value if pointer else np.array(value, _DTYPES[name]))
        addresses = (ctypes.c_void_p * len(held))(*(None if h is None else h.__array_interface__["data"][0] for h in held))
        launch = getattr(library(self.folder), f"attack_{CASES.index(self.case)}")
        launch(addresses, (ctypes.c_uint * 6)(*self.case.geometry[0], *self.case.geometry[1]))

    def after(self, move: Mapping[str, Any], step: float) -> dict[str, Any]:
        """The state after the launch that starts from the case's state moved by `step` along `move`."""
        roots = self.case.state()
        for name, direction in move.items():
            roots[name] = roots[name] + step * direction
        self.run(roots)
        return roots

    def derivative(self, move: Mapping[str, Any], seeds: Mapping[str, Any]) -> float:
        """<seeds, J move>, over arrays; numbers by value stay as they are."""
        ahead, behind = self.after(move, STEP), self.after(move, -STEP)
        return float(sum(np.sum(w * (ahead[n] - behind[n])) for n, w in seeds.items())) / (2 * STEP)


def vectors(case: Case, number: int, names: Sequence[str]) -> dict[str, Any]:
    """A random direction in the memory of `names`."""
    random = np.random.default_rng(number)
    return {n: random.normal(size=np.shape(case.state()[n])) for n in names}
