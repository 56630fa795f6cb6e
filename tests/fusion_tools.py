"""What the tests of fused launches share: launches on small memory, the kernel that does them all, and its certificate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from certificate_tools import FAULTS, edited, places
from launch_tools import compiled

from gpuad.fusion import certified, chain
from gpuad.fusion.link import Link, where_of
from gpuad.ir.nodes import Buffer, Kernel
from gpuad.runtime.base import Memory
from gpuad.runtime.reference import Reference

KERNELS = r"""
#define T int i = blockIdx.x * blockDim.x + threadIdx.x
#define I T; if (i >= n) return
#define EACH for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
#define K extern "C" __global__ void
K square(double* x, int n) { I; x[i] = x[i] * x[i]; }
K sine(double* x, int n) { I; x[i] = sin(x[i]); }
K scale(double* x, double a, int n) { I; x[i] = a * x[i]; }
K shift(double* x, double a, int n) { I; x[i] = a + x[i]; }
K to(double* y, const double* x, int n) { I; y[i] = x[i] * x[i]; }
K copy(double* y, const double* x, int n) { I; y[i] = x[i]; }
K add(double* z, const double* x, const double* y, int n) { I; z[i] = x[i] + y[i]; }
K axpy(double* y, const double* x, double a, int n) { I; y[i] += a * x[i]; }
K exchange(double* x, double* y, int n) { I; double t = x[i]; x[i] = y[i]; y[i] = t; }
K masked(double* x, const int* mask, int n) { I; if (mask[i]) x[i] = 0.5 * x[i]; }
K masked_fill(double* x, const int* mask, int n) { I; if (mask[i]) x[i] = 3.0; else x[i] = -1.0; }
K right(double* y, const double* x, int n) { I; if (i + 1 < n) y[i] = x[i + 1]; }
K push_right(double* y, const double* x, int n) { I; if (i + 1 < n) y[i + 1] = x[i]; }
K behind(double* y, const double* x, int n) { I; y[i] = x[n - 1 - i]; }
K even(double* x, int n) { T; if (2 * i < n) x[2 * i] = 2.0 * x[2 * i]; }
K odd(double* x, int n) { T; if (2 * i + 1 < n) x[2 * i + 1] = 3.0 * x[2 * i + 1]; }
K halves(double* y, const double* x, int n) { I; y[i / 2 * 2 + (i + 1) % 2] = x[i]; }
K wrapped(double* y, const double* x, int n) { I; y[i] = x[(i + 1) % n]; }
K rows(double* y, const double* x, int n) { I; y[i] = x[i % 3 * n / 3 + i / 3]; }
K rest(double* x, int n) { T; if (i > 0 && i < n - 1) x[i] = x[i] - 1.0; }
K first(double* x, int n) { T; if (i == 0 && n > 0) x[0] = x[0] + x[n - 1]; }
K picked(double* y, const double* x, const int* mask, int n) { I; y[i] = x[mask[i]]; }
K scatter(double* y, const double* x, const int* mask, int n) { I; y[mask[i]] = x[i]; }
K sum(double* s, const double* x, int n) { T; if (i < n) atomicAdd(&s[0], x[i]); }
K bins(double* y, const double* x, const int* mask, int n) { I; atomicAdd(&y[mask[i]], x[i]); }
K top(double* y, const double* x, int n) { I; y[i] = y[i] + x[0]; }
K taps(double* y, const double* x, int n) { I; double s = 0.0; for (int k = 0; k < 3; ++k) s += x[i] * k; y[i] = s; }
K below(double* y, const double* x, int n) { I; double s = 0.0; for (int k = 0; k <= i; ++k) s += x[k]; y[i] = s; }
K told(double* x, int* flag, int n) { I; x[i] = 2.0 * x[i]; atomicExch(&flag[0], i); }
K loop_square(double* x, int n) { EACH { x[i] = x[i] * x[i]; } }
K loop_to(double* y, const double* x, int n) { EACH { y[i] = 2.0 * x[i]; } }
K loop_right(double* y, const double* x, int n) { EACH { if (i + 1 < n) y[i] = x[i + 1]; } }
K loop_after(double* x, int n) { EACH { if (i >= 4) x[i] = x[i] + x[i - 4]; } }
K thread(double* y, const double* x, int n) { EACH { y[threadIdx.x] = y[threadIdx.x] + x[i]; } }
"""


def link(name: str, *args: Any, n: int, grid: int = 0, block: int = 4, text: str = KERNELS) -> Link:
    """A launch; its last argument is the number of elements. Arrays may be views."""
    kernel: Kernel = compiled(text, name).primal()
    given = [_argument(p, a) for p, a in zip(kernel.params, (*args, n), strict=True)]
    return Link(kernel, (grid or max(-(-n // block), 1), 1, 1), (block, 1, 1), given)


def _argument(param: Any, value: Any) -> Any:
    if isinstance(value, Memory):
        return value
    if isinstance(param, Buffer):
        root = value
        while isinstance(root.base, np.ndarray):
            root = root.base
        far = value.__array_interface__["data"][0] - root.__array_interface__["data"][0]
        return Memory(root.reshape(-1).view(value.dtype), far // value.itemsize)
    return np.int32(value) if param.type.is_integer else np.float64(value)


@dataclass(frozen=True, eq=False)
class Joint:
    """Launches, and one that is to do what they do."""

    apart: tuple[Link, ...]
    joined: Link
    looped: bool = False

    def refused(self) -> str | None:
        return certified.refused([certified.part_of(x) for x in self.apart], certified.part_of(self.joined), looped=self.looped)


def joint(*apart: Link, by: Sequence[Link] = ()) -> Joint:
    """The launches and the kernel that was made of them, or of others; no proof is asked for."""
    made = joined(*apart, by=by)
    assert made is not None
    return made


def joined(*apart: Link, by: Sequence[Link] = ()) -> Joint | None:
    """`joint`, or None where they cannot be written as one."""
    plan = chain._Plan(by or apart)
    kernel = plan.kernel()
    if kernel is None:
        return None
    looped = certified.is_looped(apart[0])
    return Joint(apart, Link(kernel, *(by or apart)[0].geometry, [*plan.memories, *plan.values]), looped)


def faulty(right: Joint, name: str) -> Iterator[Joint]:
    """With a fault of `certificate_tools` in the joint kernel's text, at each place where there can be one."""
    kernel = right.joined.kernel
    for place in range(places(kernel.body, FAULTS[name])):
        body = edited(kernel.body, FAULTS[name], [place])
        yield with_text(right, lambda _, body=body: body)


def with_text(right: Joint, change: Callable[[Any], Any]) -> Joint:
    """With another text of the joint kernel."""
    kernel = right.joined.kernel
    return replace(right, joined=replace(right.joined, kernel=replace(kernel, body=change(kernel.body))))


# --- what they leave ----------------------------------------------------------------------------------------------------------------------


def leave(links: Sequence[Link]) -> dict[Any, Any]:
    """What launches leave in copies of the memory that they touch. Raises RaceError where threads of one of them meet."""
    copies: dict[Any, Any] = {}
    for each in links:
        given = [_copied(copies, p, a) for p, a in zip(each.kernel.params, each.arguments, strict=True)]
        Reference().launch(each.kernel, *each.geometry, given)
    return copies


def _copied(copies: dict[Any, Any], param: Any, argument: Any) -> Any:
    if not isinstance(argument, Memory):
        return argument
    root = copies.setdefault(where_of(param, argument), np.array(argument.root))
    return replace(argument, root=root)


__all__ = ["Joint", "faulty", "joined", "joint", "leave", "link", "with_text"]
