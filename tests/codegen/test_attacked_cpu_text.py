"""Kernels for which the CPU's text was wrong: the smallest that shows each, and random ones of the same kind."""

from __future__ import annotations

import ctypes
import random
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nightly import cases

import gpuad
from gpuad import Duplicated, pipeline
from gpuad.codegen import host_source
from gpuad.codegen.cpu import register_promotion
from gpuad.codegen.cpu.helpers import host_helper_text
from gpuad.frontend.cuda import parse
from gpuad.ir.nodes import Kernel
from gpuad.pipeline.passes import primal_of
from gpuad.runtime.base import Memory
from gpuad.runtime.compiler import find_compiler
from gpuad.runtime.host import Host
from gpuad.runtime.reference import Reference
from gpuad.source import SourceFile

# --- the order of a thread's accesses, where threads may be run at once -----------------------------------------------------------------

THREADS = 70  # each has 4 elements of x, y and z
HEAD = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; int b = i * 4; T s = x[b];"
UNCLEAR = {
    "indirect": "x[b + q[i]] = 2 * s; x[b + 1] += s;",
    "stores only, with neighbours": "y[b] = s; y[b + m] = s + 1; y[b + 1] = s + 2; y[b + q[i]] = s + 3; y[b + 2] = s + 4;",
    "in a branch": "if (s > 100) x[b + m] = s; y[b] = x[b + 1] + x[b + 2];",
    "stores only, another way to write it": "y[b | (4 * i)] = s; y[b + m] = s + 1; y[b + 1] = s + 2;",
    "in a loop": "for (int k = 0; k < m; ++k) { s = x[b]; x[b + k] = s / 2 + 1; x[b + 1] += s / 4; }",
}
ASKED = {  # clear in rows that are asked how far two elements lie from each other
    "a parameter": "x[b + m] = s / 2 + 1; x[b + 1] += s;",
    "a store, then a load": "x[b] = x[b + 2] / 2; s = x[b + m]; x[b + 1] = s / 4;",
    "a load, a store, its neighbour": "s += x[b + 1]; x[b + m] = s; y[b] = x[b + 2];",
    "by turns": "x[b + 1] = s; x[b + m] = s / 2; x[b + 1] += 3; x[b + m] += x[b + 1] / 2; y[b] = x[b + m]; x[b + 1] += s;",
    "stored twice": "x[b + m] = s; y[b] = 1; x[b + 1] = s + 2; x[b + m] = s / 4; z[b] = x[b + 1]; y[b] += x[b + m];",
    "a swap": "s = x[b + 1]; x[b + 1] = x[b + m]; x[b + m] = s;",
    "three": "x[b + m] = s; x[b + 1] = 2 * s; x[b + 3 - m] = s / 2; x[b + m] += 1; x[b + 1] += 2; x[b + 3 - m] += x[b + m];",
    "a product": "int o = n * m; x[b + o - 69 * m] = s; x[b + 1] = 2; x[b + m * n - 70 * m + 2] += s; x[b + m * (n - 69)] += x[b + 1];",
    "another way to write it": "x[b + m] = s; x[b + 1] = 3; x[(int)(4u * i + 1u + m * 4294967295u + m)] += s; x[m + b] += 5;",
    "what changes in between": "int o = m; x[b + o] = s; x[b + 1] = 3; o = 1; x[b + o] += s; x[b + m] += x[b + o];",
}
CLEAR = {
    "loads before a store": "x[b + q[i]] = x[b + 1] + x[b + m] + s;",
    "the same element": "x[b + 1] = 2 * s; y[b] = x[b + 1]; x[b + 1] += s;",
    "neighbours": "x[b + 1] = s; s = x[b + 2]; x[4 * i + 2] = s / 2; y[b] = x[1 + b] + x[4 * (i + 1) - 1];",
    "the same parameter": "int o = m + 4 * i; x[b + m] = s; y[b] = x[o];",
    "the same data": "int o = q[i]; x[b + o] = s; y[b] = x[4 * i + q[i]];",
    "shifted": "y[(i << 2) + 1] = s; x[b] = y[b + 1] + y[b + 2];",
    "a loop": "for (int k = 0; k < 3; ++k) { y[i + k * n] += s; if (s > 9) s = s / 2; }",
    "lone stores": "y[b + m] = s; y[b + q[i]] = s + 1;",
    "lanes in step": "for (int k = 0; k < 3; ++k) { x[b + (k & 1) * m + k / 2] = s + k; } y[b] = x[b + 1];",
    "an index that changes": """int o = b + 1; y[o] = s;
        for (int k = 0; k < 2; ++k) { x[o] = s + k; o = b + q[i]; s += x[b + 1] + x[b]; } z[b] = s;""",
    "sides": "if (s > 90) x[b + m] = s; else y[b] = x[b + 1];",
    "another buffer": "x[b + m] = s; y[b + 1] += s;",
}
STEPS = "double s = 0; if (i < n) { for (int k = 0; k < 9; ++k) s += y[k] * x[i]; }"
CUTS = {
    "in a bound": f"{STEPS} for (int k = 0; k < (i < n ? 9 : 0); ++k) s += y[k + 3] / 4;",
    "in a start": f"{STEPS} for (int k = i < n ? m : 9; k < 9; ++k) s += y[k + 3] / 4;",
    "in a while": f"{STEPS} int k = 0; while (k < 9 && i < n) {{ k += 2; s += y[k + 3] / 4; }}",
    "of what changes later": f"{STEPS} i += 2;",
    "with what changes later": f"int e = n - 3; {STEPS.replace('i < n', 'i < e')} e += i; s += e;",
    "named": f"const bool in = i < n; {STEPS.replace('i < n', 'in')} for (int k = 0; k < in * 4; ++k) s -= y[k]; if (!in) s = 3;",
    "mirrored": f"{STEPS} int l = n > i ? 5 : 2; for (int k = 0; k < l + (n > i); ++k) s -= y[k]; s += l;",
}
PLACES = ("0", "1", "2", "3", "q[i]", "m", "(m + q[i]) % 4", "3 - m", "h(i + m)")


def random_order(seed: int) -> str:
    """Loads and stores at places of the thread's four elements, some in loops and branches."""
    rng = random.Random(seed)

    def step(places: tuple[str, ...]) -> str:
        buffer, place, other = rng.choice("xxxy"), rng.choice(places), rng.choice(places)
        return rng.choice((
            f"s = s / 2 + {buffer}[b + {place}];",
            f"{buffer}[b + {place}] = s / 2 + {rng.randrange(9)};",
            f"{buffer}[b + {place}] += s / 4;",
            f"x[b + {place}] = {buffer}[b + {other}] / 2;",
        ))  # fmt: skip

    out = []
    for _ in range(rng.randint(3, 6)):
        kind = rng.random()
        if kind < 0.75:
            out.append(step(PLACES))
        elif kind < 0.9:
            out.append(f"if (s > {rng.randrange(200)}) {{ {step(PLACES)} }} else {{ {step(PLACES)} }}")
        else:
            out.append(f"for (int k = 0; k < {rng.choice(('2', '4', 'm'))}; ++k) {{ {step((*PLACES, 'k'))} {step((*PLACES, 'k'))} }}")
    return " ".join(out) + " z[b] = s;"


ORDERS = {**CUTS, **UNCLEAR, **ASKED, **CLEAR, **{f"random {seed}": random_order(seed) for seed in range(cases(10, 24))}}


@cache
def ordered(name: str) -> Kernel:
    number = list(ORDERS).index(name)
    kind = "double" if number % 2 else "float"
    body = f"int i = blockIdx.x * blockDim.x + threadIdx.x; {CUTS[name]} z[i] = s;" if name in CUTS else f"{HEAD} {ORDERS[name]}"
    text = f"""__device__ int h(int k) {{ return (k * 7 + 3) & 3; }}
    typedef {kind} T;
    extern "C" __global__ void o{number}(T* x, T* y, T* z, const int* q, int m, int n) {{ {body} }}"""
    return primal_of(parse(SourceFile("order.cu", text)).kernel(f"o{number}"))


@cache
def host() -> Host:
    """All kernels, compiled at once."""
    executor = Host()
    executor.prepare([ordered(name) for name in ORDERS])
    return executor


def after(executor: Any, name: str, m: int) -> list[Any]:
    dtype = np.float64 if list(ORDERS).index(name) % 2 else np.float32
    arrays = [np.arange(4 * THREADS, dtype=dtype) * f + 1 for f in (1, 3, 5)]
    places = (np.arange(THREADS, dtype=np.int32) * 5) % 4
    executor.launch(ordered(name), (2, 1, 1), (40, 1, 1), [*map(Memory, arrays), Memory(places), np.int32(m), np.int32(THREADS)])
    return arrays


@pytest.mark.parametrize("name", CUTS)
def test_strips_end_where_a_comparison_changes(name: str) -> None:
    assert "gpuad_left" in host_source([ordered(name)])
    for a, b in zip(after(host(), name, 3), after(Reference(), name, 3), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", [n for n in ORDERS if n not in CUTS])
def test_a_thread_keeps_the_order_of_its_accesses(name: str) -> None:
    for m in (1, 2, 3):
        for a, b in zip(after(host(), name, m), after(Reference(), name, m), strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f"m = {m}: {ORDERS[name]}")


@pytest.mark.parametrize("name", [*UNCLEAR, *ASKED, *CLEAR])
def test_threads_are_announced_as_independent_where_the_order_is_clear(name: str) -> None:
    text = host_source([ordered(name)])
    assert any(f"{mark}\n   " in text for mark in ("GPUAD_INDEPENDENT", "GPUAD_LANES", "GPUAD_FLOATS", "GPUAD_DOUBLES")) == (
        name not in UNCLEAR
    )
    assert (" != 0" in text.partition("gpuad_high = gpuad_low;\n            if (!(")[2].partition("\n")[0]) == (name in ASKED)


def test_what_is_kept_in_a_variable_is_not_what_memory_holds_where_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The premise: without the question the elements of these are taken to be apart where they are one."""
    monkeypatch.setattr(register_promotion._Places, "distances", lambda *_: [])
    for name in ("by turns", "stored twice", "three"):
        executor = Host()
        executor.prepare([ordered(name)])
        assert any(not np.array_equal(a, b) for a, b in zip(after(executor, name, 1), after(Reference(), name, 1), strict=True))


def test_threads_whose_arguments_overlap_are_announced_if_their_stores_come_last() -> None:
    marked = {name: "GPUAD_INDEPENDENT\n   " in host_source([ordered(name)], no_alias=False) for name in CLEAR}
    assert {name for name, is_marked in marked.items() if is_marked} == {"loads before a store", "a loop", "sides"}


@pytest.mark.parametrize("m", [1, 2])
def test_the_gradient_of_what_meets_in_one_thread(m: int) -> None:
    source = """extern "C" __global__ void k(double* x, int m, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; int b = i * 4;
        for (int k = 0; k < m; ++k) { double s = x[b]; x[b + k] = 0.5 * s + 1.0; x[b + 1] += 0.3 * s; } }"""

    def run() -> tuple[Any, Any]:
        x, dx = np.arange(1.0, 257.0), np.random.default_rng(0).standard_normal(256)
        gpuad.autodiff(gpuad.kernel(source, "k"), (1,), (64,), (Duplicated(x, dx), m, 64))
        return x, dx

    found = run()
    with pipeline.executor_for_tests(Reference()):
        wanted = run()
    np.testing.assert_allclose(found, wanted, rtol=1e-13)


# --- a loop over more than 2^32 elements ------------------------------------------------------------------------------------------------


def test_rows_of_threads_beyond_32_bits(tmp_path: Path) -> None:
    text = f"""namespace gpuad_host {{
    #define GPUAD_INLINE static inline __attribute__((always_inline))
    {host_helper_text({"gpuad_row_of"})}
    extern "C" __attribute__((visibility("default"))) long long row(long long i, long long by, long long* end)
    {{ return gpuad_row_of<long long>(i, by, *end); }}
    }}"""
    (tmp_path / "rows.cpp").write_text(text)
    find_compiler().build(tmp_path / "rows.cpp", tmp_path / "rows.so", ())
    row = ctypes.CDLL(str(tmp_path / "rows.so")).row
    row.restype = ctypes.c_longlong
    for i in (0, 7, 2**31, 2**32 - 1, 2**32, 2**32 + 999, 2**40 + 3):
        for by in (1, 3, 1000, 2**28, 2**32 - 1, 2**32, -2, 0):
            end = ctypes.c_longlong(2**62)
            quotient = row(ctypes.c_longlong(i), ctypes.c_longlong(by), ctypes.byref(end))
            assert quotient == (i // by if by > 0 else -(i // -by) if by else -1), (i, by)
            assert i < end.value <= (quotient + 1) * by if by > 0 else end.value == i + 1, (i, by)


def test_only_the_whole_index_is_divided_by_rows() -> None:
    stride = "for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)"
    for index, by_rows in (("i", True), ("(long long)(int)i", False)):
        text = f'extern "C" __global__ void k(double* y, long long n, long long w) {{ {stride} atomicAdd(&y[({index}) / w], 1.0); }}'
        kernel = primal_of(parse(SourceFile("rows.cu", text)).kernel("k"))
        assert ("gpuad_row_of" in host_source([kernel])) == by_rows
