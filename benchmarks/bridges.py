"""What gpuad's bridges to PyTorch and JAX do, beside those of Warp: each line of the table is tried here, with both, on a CPU.

    python -m benchmarks.bridges [MACHINE]

With the name of a kind of machine it writes a record, which has what `torch_overhead` and `splatting` measure as well. The kernel squares
an array, in place (`x[i] = x[i] * x[i]`) where it says so, else into a new one. Warp has no node of PyTorch's graph, so there stands what
its documentation does: an `autograd.Function` around a `warp.Tape`. "yes": the result and the gradient are right; else what came."""

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
import warp as wp

import gpuad
import gpuad.jax
import gpuad.torch

from . import records, splatting, torch_overhead

wp.init()
N = 8
TEXT = r"""
extern "C" __global__ void place(float* x, int n) { int i = threadIdx.x; if (i < n) x[i] = x[i] * x[i]; }
extern "C" __global__ void square(const float* x, float* y, int n) { int i = threadIdx.x; if (i < n) y[i] = x[i] * x[i]; }"""


@wp.kernel
def warp_square(x: wp.array(dtype=float), y: wp.array(dtype=float)):  # type: ignore[valid-type]
    """Squares into a new array."""
    i = wp.tid()
    y[i] = x[i] * x[i]


@wp.kernel
def warp_place(x: wp.array(dtype=float)):  # type: ignore[valid-type]
    """Squares in place."""
    i = wp.tid()
    x[i] = x[i] * x[i]


class WarpNode(torch.autograd.Function):
    """As Warp's documentation has it."""

    @staticmethod
    def forward(ctx: Any, x: Any, in_place: bool) -> Any:
        ctx.tape, ctx.x = wp.Tape(), wp.from_torch(x.detach(), requires_grad=True)
        ctx.y = ctx.x if in_place else wp.zeros(N, dtype=float, requires_grad=True, device="cpu")
        with ctx.tape:
            if in_place:
                wp.launch(warp_place, dim=N, inputs=[ctx.x], device="cpu")
                ctx.mark_dirty(x)
            else:
                wp.launch(warp_square, dim=N, inputs=[ctx.x], outputs=[ctx.y], device="cpu")
        return x if in_place else wp.to_torch(ctx.y).detach()

    @staticmethod
    def backward(ctx: Any, seed: Any) -> Any:
        ctx.y.grad = wp.from_torch(seed.contiguous())
        ctx.tape.backward()
        return wp.to_torch(ctx.x.grad), None


ours = gpuad.torch.function(gpuad.kernel(TEXT, "square"), grid=1, block=32, outputs={"y": "x"}, twice=True)
changing = gpuad.torch.function(gpuad.kernel(TEXT, "place"), grid=1, block=32, overwrites="inplace")
ours_jax = gpuad.jax.function(gpuad.kernel(TEXT, "square"), grid=1, block=32, outputs={"y": "x"})
ours_place = gpuad.jax.function(gpuad.kernel(TEXT, "place"), grid=1, block=32)
warps_jax = wp.jax_kernel(warp_square, enable_backward=True)
Call = Callable[[Any], Any]
GPUAD, WARP = (lambda x: ours(x, N)), (lambda x: WarpNode.apply(x, False))
GPUAD_JAX, WARP_JAX = (lambda x: ours_jax(x, N)), (lambda x: warps_jax(x)[0])


def values() -> Any:
    """1, 2, 3 ..."""
    return torch.arange(1.0, N + 1)


def backward(f: Call) -> bool:
    x = values().requires_grad_()
    f(x).sum().backward()
    return torch.equal(x.grad, 2 * values())


def in_place(f: Call) -> bool:
    x = values().requires_grad_()
    f(x * 1).sum().backward()
    return torch.equal(x.grad, 2 * values())


def misuse(f: Call) -> bool:
    """A tensor that is held, changed by the user before the backward pass."""
    x = values().requires_grad_()
    y = f(z := x * 1)
    with torch.no_grad():
        z.mul_(2)
    try:
        y.sum().backward()
    except RuntimeError:
        return True
    return torch.equal(x.grad, 2 * values())


def captured(f: Call) -> bool:
    torch._dynamo.reset()
    return backward(torch.compile(f, backend="aot_eager", fullgraph=True))


def twice(f: Call) -> bool:
    x = values().requires_grad_()
    (dx,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
    return torch.equal(torch.autograd.grad(dx.sum(), x)[0], torch.full((N,), 2.0))


def torch_hessian(f: Call) -> bool:
    return torch.equal(torch.func.hessian(lambda x: f(x).sum())(values()), 2 * torch.eye(N))


def forward_mode(f: Call) -> bool:
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(values(), torch.ones(N))
        return torch.equal(torch.autograd.forward_ad.unpack_dual(f(dual)).tangent, 2 * values())


def batched(f: Call) -> bool:
    return torch.equal(torch.func.vmap(f)(torch.stack([values(), values()]))[1], values() ** 2)


def jax_values() -> Any:
    return jnp.arange(1.0, N + 1)


TORCH: dict[str, tuple[Callable[[Call], bool], Call, Call]] = {
    "backward": (backward, GPUAD, WARP),
    "in place": (in_place, lambda x: changing(x, N), lambda x: WarpNode.apply(x, True)),
    "a held tensor that is changed is seen, or does no harm": (misuse, GPUAD, WARP),
    "torch.compile, whole graph": (captured, GPUAD, WARP),
    "second derivatives": (twice, GPUAD, WARP),
    "torch.func.hessian": (torch_hessian, GPUAD, WARP),
    "forward mode": (forward_mode, GPUAD, WARP),
    "torch.func.vmap": (batched, GPUAD, WARP),
}


def donated(f: Call) -> bool:
    x = jax_values() + 0
    at = x.unsafe_buffer_pointer()
    y = jax.jit(f, donate_argnums=0)(x)
    return y.unsafe_buffer_pointer() == at and np.array_equal(y, jax_values() ** 2)


def donated_gradient(f: Call) -> bool:
    """A donated input changed in place, and its gradient."""
    return jax_gradient(f) and donated(f)


def warp_in_out(backward: bool) -> Call:
    made: Any = None

    def call(x: Any) -> Any:
        nonlocal made
        made = made or wp.jax_kernel(warp_place, num_outputs=1, in_out_argnames=["x"], enable_backward=backward)
        return made(x)[0]

    return call


def jax_gradient(f: Call) -> bool:
    return np.array_equal(jax.jit(jax.grad(lambda x: f(x).sum()))(jax_values()), 2 * jax_values())


def jax_forward_mode(f: Call) -> bool:
    return np.array_equal(jax.jvp(f, (jax_values(),), (jnp.ones(N),))[1], 2 * jax_values())


def jax_hessian(f: Call) -> bool:
    return np.array_equal(jax.hessian(lambda x: f(x).sum())(jax_values()), 2 * np.eye(N))


def jax_batched(f: Call) -> bool:
    return np.array_equal(jax.vmap(f)(jnp.stack([jax_values()] * 2))[1], jax_values() ** 2)


def jax_batched_gradient(f: Call) -> bool:
    return np.array_equal(jax.vmap(jax.grad(lambda x: f(x).sum()))(jnp.stack([jax_values()] * 2))[1], 2 * jax_values())


JAX: dict[str, tuple[Callable[[Call], bool], Call, Call]] = {
    "jit and grad": (jax_gradient, GPUAD_JAX, WARP_JAX),
    "jvp": (jax_forward_mode, GPUAD_JAX, WARP_JAX),
    "second derivatives": (jax_hessian, GPUAD_JAX, WARP_JAX),
    "vmap": (jax_batched, GPUAD_JAX, WARP_JAX),
    "vmap of grad": (jax_batched_gradient, GPUAD_JAX, WARP_JAX),
    "a donated input in place": (donated, lambda x: ours_place(x, N), warp_in_out(False)),
    "in place with gradients": (donated_gradient, lambda x: ours_place(x, N), warp_in_out(True)),
}


def tried(check: Callable[[Call], bool], call: Call) -> str:
    """What came of it."""
    try:
        return "yes" if check(call) else "wrong, without a word"
    except Exception as error:
        return f"no: {type(error).__name__}"


def main() -> None:
    table = {
        f"{where}: {what}": {"gpuad": tried(check, own), "Warp": tried(check, theirs)}
        for where, lines in (("PyTorch", TORCH), ("JAX", JAX))
        for what, (check, own, theirs) in lines.items()
    }
    print(f"| PyTorch {torch.__version__}, JAX {jax.__version__}, Warp {wp.__version__} | gpuad | Warp |\n|---|---|---|")
    for what, row in table.items():
        print(f"| {what} | {row['gpuad']} | {row['Warp']} |")
    if len(sys.argv) > 1:
        costs = {"overhead": torch_overhead.measured(), "splatting": splatting.measured()}
        versions = records.versions("torch", "jax", "warp-lang")
        about = {"versions": versions, "compiler": records.compiler(), "load": records.load()}
        print(records.write("bridges", sys.argv[1], records.today(), {**about, "table": table, **costs}))


if __name__ == "__main__":
    main()
