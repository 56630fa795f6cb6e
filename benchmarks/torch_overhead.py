"""What a call of 1,000 elements costs in PyTorch: gpuad's functions beside an `autograd.Function` that calls a compiled kernel by ctypes.

    python -m benchmarks.torch_overhead

The peer is what a user would write by hand: a C kernel and its derivative, compiled with optimisation, called with addresses, in an
`autograd.Function` that saves its input, and one that changes it in place. Both do forward and backward of one launch. Rounds take turns;
the lowest of the medians counts.
"""

from __future__ import annotations

import ctypes
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import gpuad
import gpuad.torch

N = 1000
KERNEL = r"""
extern "C" __global__ void square(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i];
}
extern "C" __global__ void square_in_place(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = x[i] * x[i];
}"""
BY_HAND = r"""
void square(const float* x, float* y, int n) { for (int i = 0; i < n; ++i) y[i] = x[i] * x[i]; }
void square_back(const float* x, const float* dy, float* dx, int n) { for (int i = 0; i < n; ++i) dx[i] = 2.0f * x[i] * dy[i]; }
"""


def by_hand() -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """The peer: with a new output, and in place, where it keeps a copy of the input."""
    folder = Path(tempfile.mkdtemp())
    (folder / "square.c").write_text(BY_HAND)
    subprocess.run(["cc", "-O3", "-march=native", "-shared", "-fPIC", "-o", folder / "square.so", folder / "square.c"], check=True)
    library = ctypes.CDLL(str(folder / "square.so"))
    pointer = ctypes.c_void_p
    library.square.argtypes, library.square.restype = [pointer, pointer, ctypes.c_int], None
    library.square_back.argtypes, library.square_back.restype = [pointer, pointer, pointer, ctypes.c_int], None
    forward, back = library.square, library.square_back

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = torch.empty_like(x)
            forward(x.data_ptr(), y.data_ptr(), x.numel())
            ctx.save_for_backward(x)
            return y

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            (x,) = ctx.saved_tensors
            dy, dx = dy.contiguous(), torch.empty_like(x)
            back(x.data_ptr(), dy.data_ptr(), dx.data_ptr(), x.numel())
            return dx

    class Place(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x.clone())
            forward(x.data_ptr(), x.data_ptr(), x.numel())
            ctx.mark_dirty(x)
            return x

        backward = Square.backward

    return Square.apply, Place.apply


class _Returning:
    """One call of a function and its backward."""

    def __init__(self, call: Callable[[Any], Any]) -> None:
        self.call, self.x, self.seed = call, torch.randn(N, requires_grad=True), torch.ones(N)

    def __call__(self) -> None:
        self.x.grad = None
        torch.autograd.backward(self.call(self.x), self.seed)


def measured(rounds: int = 15) -> dict[str, dict[str, float]]:
    """For each form microseconds of CPU time of a call with its backward, and how many times those of its peer they are."""
    torch.set_num_threads(1)
    grid = (N + 255) // 256
    square = gpuad.torch.function(gpuad.kernel(KERNEL, "square"), grid=grid, block=256, outputs={"y": "x"})
    cloning, changing = (
        gpuad.torch.function(gpuad.kernel(KERNEL, "square_in_place"), grid=grid, block=256, overwrites=how) for how in ("return", "inplace")
    )
    returning, placing = by_hand()
    calls = {
        "by hand, ctypes": _Returning(returning),
        "gpuad, new output": _Returning(lambda x: square(x, N)),
        "gpuad, clones": _Returning(lambda x: cloning(x, N)),
        "by hand, in place": _Returning(lambda x: placing(x * 1)),
        "gpuad, in place": _Returning(lambda x: changing(x * 1, N)),
    }
    medians: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times = []
            for _ in range(300):
                start = time.process_time()
                call()
                times.append(time.process_time() - start)
            medians[name].append(statistics.median(times))
    least = {name: 1e6 * min(found) for name, found in medians.items()}
    peer = {name: least["by hand, in place" if "in place" in name else "by hand, ctypes"] for name in calls}
    return {name: {"cpu_us": round(us, 2), "over_by_hand": round(us / peer[name], 3)} for name, us in least.items()}


def main() -> None:
    for name, row in measured(int(sys.argv[1]) if len(sys.argv) > 1 else 15).items():
        print(f"{name:20s} {row['cpu_us']:7.1f} us  {row['over_by_hand']:5.2f}")


if __name__ == "__main__":
    main()
