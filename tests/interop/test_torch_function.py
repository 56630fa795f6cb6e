"""`gpuad.torch.function`: PyTorch's own rules about tensors, graphs and changes in place, and what is held between forward and backward."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; docs/how-to/torch.md has the command for these tests")

import gpuad  # noqa: E402
import gpuad.torch  # noqa: E402
from gpuad.interop import split_launch  # noqa: E402

N = 300
GRID = (N + 127) // 128


def kernel(text: str, name: str = "k") -> Any:
    return gpuad.kernel("#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n#include <cupy/complex.cuh>\n" + text, name)


def body(parameters: str, statement: str) -> Any:
    guard = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) { "
    return kernel(f'extern "C" __global__ void k({parameters}, int n) {{ {guard}{statement} }} }}')


def function(k: Any, **more: Any) -> Any:
    return gpuad.torch.function(k, grid=lambda n: (n + 127) // 128, block=128, **more)


SQUARE = body("double* x", "x[i] = x[i] * x[i];")
EXP = body("double* x", "x[i] = exp(x[i]);")
SCALE = body("const double* x, double* y, double a", "y[i] = a * x[i];")
PRODUCT = body("const double* a, const double* b, double* y", "y[i] = a[i] * b[i];")


def leaf(*shape: int, dtype: Any = None) -> Any:
    torch.manual_seed(len(shape))
    return torch.randn(*(shape or (N,)), dtype=dtype or torch.float64, requires_grad=True)


def held(output: Any) -> list[Any]:
    """What the graph's node of an output keeps."""
    node = output.grad_fn
    return [x for x in node.saved_tensors if x is not None]


# --- what is shared, and what is made ---------------------------------------------------------------------------------------------------


def test_in_place_is_on_the_caller_s_memory_and_allocates_nothing() -> None:
    f = function(SQUARE, overwrites="inplace")
    x = torch.arange(N, dtype=torch.float64)
    at, version = x.data_ptr(), x._version
    with torch.no_grad():
        f(x.clone(), N)
        with torch.profiler.profile(profile_memory=True) as seen:
            y = f(x, N)
    assert y.data_ptr() == at and y is x and x._version == version + 1
    assert torch.equal(x, torch.arange(N, dtype=torch.float64) ** 2)
    assert not [e for e in seen.events() if e.name.startswith("aten::") and e.cpu_memory_usage > 0]


def test_the_form_that_returns_makes_its_outputs_and_its_gradients_alone() -> None:
    f = function(SCALE, outputs={"y": "x"})
    x, seed = leaf(), torch.ones(N, dtype=torch.float64)
    torch.autograd.grad(f(x, 3.0, N), x, seed)
    with torch.profiler.profile(profile_memory=True) as seen:
        y = f(x, 3.0, N)
        (dx,) = torch.autograd.grad(y, x, seed)
    made = sum(e.self_cpu_memory_usage for e in seen.events() if e.self_cpu_memory_usage > 0)
    assert made == 2 * x.nbytes, "the output and the gradient; the seed is only read"
    assert torch.equal(dx, 3 * seed) and torch.equal(seed, torch.ones_like(seed)), "the caller's seed stays"


def test_only_what_an_adjoint_reads_is_held() -> None:
    a, b = leaf(), leaf(N, 1).reshape(N)
    assert held(function(SCALE, outputs={"y": "x"})(a, 2.0, N)) == []
    both = held(function(PRODUCT, outputs={"y": "a"})(a, b, N))
    assert {x.data_ptr() for x in both} == {a.data_ptr(), b.data_ptr()}
    one = held(function(PRODUCT, outputs={"y": "a"})(a, b.detach(), N))
    assert [x.data_ptr() for x in one] == [b.data_ptr()], "the gradient of `a` reads `b` alone"
    y = function(EXP)(a, N)
    assert [x.data_ptr() for x in held(y)] == [y.data_ptr()], "exp is its own derivative: the output is all that is kept"


def test_memory_held_is_gpuad_s_own_account() -> None:
    """In place, an overwritten input that an adjoint needs is copied, once; nothing else is. What the launch writes down is counted."""
    counted = kernel(
        'extern "C" __global__ void k(const double* x, double* y, int* count, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; '
        "if (i < n && x[i] > 0) { int at = atomicAdd(count, 1); y[at] = x[i] * x[i]; } }"
    )
    x = leaf()
    y, count = torch.zeros(N, dtype=torch.float64), torch.zeros(1, dtype=torch.int32)
    f = function(counted, outputs=["y", "count"])
    out, counter = f(x, y, count, N)
    split = split_launch(counted, (True, True, False, False), GRID, 128, (x.detach().numpy(), y.numpy(), count.numpy(), N))
    own = [t for t in held(out) if t.data_ptr() not in (x.data_ptr(), out.data_ptr(), counter.data_ptr())]
    assert split.saved_bytes > 0 and sum(t.nbytes for t in own) == split.saved_bytes
    (dx,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(dx, torch.where(x > 0, 2 * x, 0.0))
    z = leaf() * 1
    (copy,) = held(function(SQUARE, overwrites="inplace")(z, N))
    assert copy.nbytes == z.nbytes and copy.data_ptr() != z.data_ptr()


def test_what_is_not_held_is_freed() -> None:
    f = function(SCALE, outputs={"y": "x"})
    x = leaf() * 1
    gone = weakref.ref(x)
    y = f(x, 2.0, N)
    x = None
    gc.collect()
    assert gone() is None and y.grad_fn is not None


# --- the activity pattern ----------------------------------------------------------------------------------------------------------------


def test_only_wanted_gradients_have_shadows() -> None:
    f = function(PRODUCT, outputs={"y": "a"})
    a, b = leaf(), leaf().detach()
    f(a, b, N).sum().backward()
    (made,) = [m for m in f.bridge._made.values() if m.split is not None]
    assert [d is not None for d in made.split.shadows] == [True, False, True, False]
    assert torch.equal(a.grad, b)
    assert not f(a.detach(), b, N).requires_grad


def test_a_number_by_value_has_a_gradient() -> None:
    f = function(SCALE, outputs={"y": "x"})
    for dtype in (torch.float64, torch.float32):
        a, x = torch.tensor(1.5, dtype=dtype, requires_grad=True), leaf()
        f(x, a, N).sum().backward()
        assert a.grad.dtype == dtype and torch.allclose(a.grad, x.sum().to(dtype)) and torch.allclose(x.grad, torch.full_like(x, 1.5))


def test_gradients_that_nobody_asks_for_are_none() -> None:
    k = body("const double* x, double* y, double* z", "y[i] = 2 * x[i]; z[i] = x[i] * x[i];")
    f = function(k, outputs={"y": "x", "z": "x"})
    x = leaf()
    for _ in range(3):  # from the second on by the node that is written for this launch
        y, z = f(x, N)
        (dy,) = torch.autograd.grad(y.sum(), x)
        y, z = f(x, N)
        (dz,) = torch.autograd.grad(z.sum(), x)
        y, z = f(x, N)
        (both,) = torch.autograd.grad((y * z).sum(), x)
        assert torch.equal(dy, torch.full_like(x, 2.0)) and torch.equal(dz, 2 * x.detach())
        assert torch.allclose(both, 6 * x.detach() ** 2)


def test_integer_outputs_carry_no_gradient() -> None:
    k = body("const double* x, int* bin, double* y", "bin[i] = (int)x[i]; y[i] = x[i] * x[i];")
    x = leaf()
    bin_, y = function(k, outputs={"bin": "x", "y": "x"})(x, N)
    assert bin_.dtype == torch.int32 and not bin_.requires_grad
    y.sum().backward()
    assert torch.equal(x.grad, 2 * x.detach())


def test_an_output_that_does_not_depend_on_what_is_wanted_gives_zeros() -> None:
    x, y = leaf().detach(), leaf()
    (dy,) = torch.autograd.grad(function(SCALE, outputs=["y"])(x, y, 2.0, N).sum(), y)
    assert torch.equal(dy, torch.zeros(N, dtype=torch.float64)), "all of y is overwritten"


def test_what_is_overwritten_in_part_keeps_the_rest_of_its_gradient() -> None:
    y = leaf()
    (dy,) = torch.autograd.grad(function(SCALE, outputs=["y"])(torch.ones(N, dtype=torch.float64), y, 2.0, N - 10).sum(), y)
    assert torch.equal(dy, torch.cat([torch.zeros(N - 10), torch.ones(10)]).double())


# --- changes in place --------------------------------------------------------------------------------------------------------------------


def test_leaves_are_refused_as_pytorch_refuses_them() -> None:
    x = leaf()
    before = x.detach().clone()
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation"):
        function(SQUARE, overwrites="inplace")(x, N)
    assert torch.equal(x, before)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        function(SCALE, overwrites="inplace")(leaf(N), x, 2.0, N)


def test_pytorch_speaks_when_a_change_in_place_spoils_its_own_graph() -> None:
    x = leaf()
    y = x * 1
    z = y * y
    function(SQUARE, overwrites="inplace")(y, N)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


@pytest.mark.parametrize("overwrites", ["return", "inplace"])
def test_a_saved_tensor_that_the_user_changes_raises(overwrites: str) -> None:
    a, b = leaf() * 1, leaf() * 1
    y = function(PRODUCT, outputs=["y"], overwrites=overwrites)(a, b, torch.zeros(N, dtype=torch.float64), N)
    b.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_saved_output_that_the_user_changes_raises() -> None:
    y = function(EXP)(leaf(), N)
    with torch.no_grad():
        y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_in_place_twice_in_a_row() -> None:
    f = function(SQUARE, overwrites="inplace")
    x = leaf()
    y = x * 1
    f(f(y, N), N)
    y.sum().backward()
    assert torch.allclose(x.grad, 4 * x.detach() ** 3)


def test_a_launch_in_place_that_is_known_refuses_what_a_new_one_refuses() -> None:
    """From the second call on a launch goes a way of its own, which asks as much before it writes."""
    square, added = (
        function(SQUARE, overwrites="inplace"),
        function(body("double* y, const double* x", "y[i] += x[i] * x[i];"), overwrites="inplace"),
    )
    for _ in range(2):
        x, y = leaf(), leaf()
        out = added(square(y * 1, N), x * 1, N)
        out.sum().backward()
        assert torch.allclose(x.grad, 2 * x.detach()) and torch.allclose(y.grad, 2 * y.detach())
    assert square._known and added._known
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        square(x, N)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        added(x, y * 1, N)
    z = y * 1
    before = z.detach().clone()
    for other in (z, z.detach()):
        with pytest.raises(gpuad.LaunchError, match="lies on the same memory"):
            added(z, other, N)
    assert torch.equal(z.detach(), before)
    base = torch.cat([y, y]) * 1
    square(base[N:], N)
    y.grad = None
    base.sum().backward()
    assert torch.allclose(y.grad, 1 + 2 * y.detach())


def test_a_known_launch_in_place_is_a_node_like_a_new_one() -> None:
    """Versions, saved tensors, and graphs that are walked twice."""
    square, product = function(SQUARE, overwrites="inplace"), function(PRODUCT, outputs=["y"], overwrites="inplace")
    for _ in range(3):
        x = leaf()
        y = x * 1
        version = y._version
        z = square(y, N)
        assert z is y and y._version == version + 1
        first = torch.autograd.grad(z.sum(), x, retain_graph=True)
        second = torch.autograd.grad(z.sum(), x)
        assert torch.equal(first[0], second[0]) and torch.equal(first[0], 2 * x.detach())
        a, b = leaf() * 1, leaf() * 1
        made = product(a, b, torch.zeros(N, dtype=torch.float64), N)
        b.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            made.sum().backward()
    assert square._known and product._known


def test_a_view_in_place_changes_its_base() -> None:
    x = leaf()
    y = x * 1
    function(SQUARE, overwrites="inplace")(y[: N // 2], N // 2)
    y.sum().backward()
    assert torch.allclose(x.grad, torch.cat([2 * x.detach()[: N // 2], torch.ones(N - N // 2)]))


def test_a_view_in_place_beside_another_output_is_refused_before_anything_is_written() -> None:
    k = body("double* x, double* y", "y[i] += x[i]; x[i] = 2 * x[i];")
    base = leaf() * 1
    before = base.detach().clone()
    with pytest.raises(gpuad.LaunchError, match="a view, in place"):
        function(k, overwrites="inplace")(base[:100], torch.zeros(100, dtype=torch.float64), 100)
    assert torch.equal(base, before)


def test_a_graph_is_walked_twice() -> None:
    k = body("double* x", "double s = x[i]; for (int j = 0; j < 3; ++j) { x[i] = s * x[i]; s = sin(x[i]); } x[i] = s;")
    x = leaf()
    y = function(k)(x, N)
    first = torch.autograd.grad(y.sum(), x, retain_graph=True)
    second = torch.autograd.grad(y.sum(), x)
    assert torch.equal(first[0], second[0])


# --- layouts -----------------------------------------------------------------------------------------------------------------------------


def test_order_of_axes_is_that_of_memory() -> None:
    x = leaf(20, 15)
    y = function(SQUARE)(x.t(), N)
    y.sum().backward()
    assert y.stride() == x.t().stride() and torch.allclose(x.grad, 2 * x.detach())


@pytest.mark.parametrize("made", [lambda x: x[::2], lambda x: x[0].expand(N), lambda x: x.flip(0).as_strided((N,), (0,))])
def test_strides_are_refused_with_a_hint(made: Any) -> None:
    x = made(leaf())
    for f in (function(SQUARE), function(SCALE, outputs={"y": "x"})):
        with pytest.raises((gpuad.LaunchError), match="contiguous"):
            f(x, *((2.0,) if len(f.signature.passed) == 3 else ()), x.numel())


def test_shapes_are_not_broadcast() -> None:
    with pytest.raises(gpuad.GpuadError):
        function(PRODUCT, outputs={"y": "a"})(leaf(), leaf()[0].expand(N), N)


def test_overlapping_inputs_have_gradients_of_their_own() -> None:
    x = leaf()
    f = function(PRODUCT, outputs={"y": "a"})
    f(x, x, N).sum().backward()
    assert torch.equal(x.grad, 2 * x.detach())
    x.grad = None
    f(x[:-1], x[1:], N - 1).sum().backward()
    expected = torch.zeros(N).double()
    expected[:-1] += x.detach()[1:]
    expected[1:] += x.detach()[:-1]
    assert torch.allclose(x.grad, expected)


def test_overlap_with_what_is_overwritten() -> None:
    k = body("double* y, const double* x", "y[i] += x[i] * x[i];")
    x = leaf()
    (dx,) = torch.autograd.grad(function(k)(x, x, N).sum(), x)
    assert torch.allclose(dx, 1 + 2 * x)
    y = x * 1
    with pytest.raises(gpuad.LaunchError, match="lies on the same memory"):
        function(k, overwrites="inplace")(y, y, N)


def test_a_part_of_a_tensor_that_a_kernel_may_leave_is_refused() -> None:
    k = body("const double* x, const int* at, double* y", "y[i] = x[at[i]];")
    f = gpuad.torch.function(k, grid=1, block=128, outputs={"y": "at"})
    x, at = leaf(), torch.arange(100, dtype=torch.int32)
    with pytest.raises(gpuad.LaunchError, match="part of a larger tensor"):
        f(x[100:], at, 100)
    f(x[100:].clone(), at, 100).sum().backward()
    assert torch.equal(x.grad, torch.cat([torch.zeros(100), torch.ones(100), torch.zeros(100)]).double())


def test_lazy_conjugates_are_refused() -> None:
    k = body("const complex<double>* x, double* y", "y[i] = norm(x[i]);")
    with pytest.raises(gpuad.LaunchError, match="resolve_conj"):
        function(k, outputs={"y": lambda x: x})(leaf(dtype=torch.complex128).conj(), N)


# --- types -------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "type_"), [(torch.float16, "__half"), (torch.bfloat16, "__nv_bfloat16")])
def test_halves(dtype: Any, type_: str) -> None:
    k = body(f"const {type_}* x, {type_}* y", "y[i] = x[i] * x[i];")
    x = torch.randn(N).to(dtype).requires_grad_()
    y = function(k, outputs={"y": "x"})(x, N)
    assert y.dtype == dtype and torch.equal(y, (x.detach().float() ** 2).to(dtype))
    y.sum().backward()
    assert x.grad.dtype == dtype and torch.allclose(x.grad.float(), 2 * x.detach().float())


def test_complex_conventions_agree() -> None:
    k = body("const complex<double>* z, const complex<double>* w, complex<double>* y", "y[i] = z[i] * z[i] * conj(w[i]);")
    z, w = leaf(dtype=torch.complex128), leaf(N, dtype=torch.complex128)
    f = function(k, outputs={"y": "z"})
    seed = torch.randn(N, dtype=torch.complex128)
    ours = torch.autograd.grad(f(z, w, N), (z, w), seed)
    theirs = torch.autograd.grad(z * z * w.conj(), (z, w), seed)
    for a, b in zip(ours, theirs, strict=True):
        assert torch.allclose(a, b)


def test_seeds_of_any_layout_and_type() -> None:
    f = function(SCALE, outputs={"y": "x"})
    x = leaf()
    f(x, 2.0, N).sum().backward()  # an expanded seed
    assert torch.equal(x.grad, torch.full_like(x, 2.0))
    (dx,) = torch.autograd.grad(f(x, 2.0, N), x, torch.arange(2.0 * N).double()[::2])
    assert torch.equal(dx, 4 * torch.arange(N).double())


# --- the rest of PyTorch -----------------------------------------------------------------------------------------------------------------


def test_checkpointing() -> None:
    f, g = function(SQUARE), function(EXP)
    x, y = leaf(), leaf()
    part = lambda x: g(f(x, N) * 0.1, N)  # noqa: E731
    for reentrant in (False, True):
        x.grad = y.grad = None
        torch.utils.checkpoint.checkpoint(part, x, use_reentrant=reentrant).sum().backward()
        part(y).sum().backward()
        assert torch.equal(x.grad, y.grad)


def test_saved_tensors_hooks_may_move_what_is_held() -> None:
    f = function(SQUARE)
    for x in (leaf(20, 15), leaf(20, 15)):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(memory_format=torch.contiguous_format), lambda t: t):
            y = f(x.t(), N)
        y.sum().backward()
        assert torch.allclose(x.grad, 2 * x.detach())


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_captured_graph_is_whole(backend: str) -> None:
    f, g = function(SQUARE), function(SCALE, outputs={"y": "x"})
    a = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)

    def model(x: Any, a: Any) -> Any:
        return (g(f(torch.sin(x), N), a, N) * 3).sum()

    x, y = leaf(), leaf()
    torch._dynamo.reset()
    torch.compile(model, backend=backend, fullgraph=True)(x, a).backward()
    da, a.grad = a.grad, None
    model(y, a).backward()
    assert torch.allclose(x.grad, y.grad) and torch.allclose(da, a.grad)


def test_in_place_is_refused_in_a_captured_graph() -> None:
    f = function(SQUARE, overwrites="inplace")
    torch._dynamo.reset()
    with pytest.raises(Exception, match="eager mode alone"):
        torch.compile(lambda x: f(x * 1, N).sum(), backend="eager", fullgraph=True)(leaf())
    with pytest.raises(gpuad.LaunchError, match="eager mode alone"):
        torch.func.vmap(lambda x: f(x, N))(torch.ones(2, N, dtype=torch.float64))


def test_transforms_of_functions() -> None:
    f = function(PRODUCT, outputs={"y": "a"})
    a, b = leaf().detach()[:5].clone(), leaf(N).detach()[5:10].clone()
    of_a = lambda a: f(a, b, 5)  # noqa: E731
    assert torch.allclose(torch.func.grad(lambda a: of_a(a).sum())(a), b)
    assert torch.allclose(torch.func.jacrev(of_a)(a), torch.diag(b))
    assert torch.allclose(torch.func.jacfwd(of_a)(a), torch.diag(b))
    many = torch.stack([a, 2 * a, 3 * a])
    assert torch.allclose(torch.func.vmap(of_a)(many), many * b)
    assert torch.allclose(torch.func.vmap(torch.func.grad(lambda a: (of_a(a) ** 2).sum()))(many), 2 * many * b * b)
    assert torch.allclose(torch.func.grad(lambda m: (torch.func.vmap(of_a)(m) ** 2).sum())(many), 2 * many * b * b)
    turned = many.t().contiguous()
    assert torch.allclose(torch.func.vmap(of_a, in_dims=1)(turned), many * b)


def test_second_derivatives_of_functions() -> None:
    """`torch.func`'s ways to take them, of a kernel in place that reads what it overwrites, beside PyTorch's own operations."""
    k = body("double* x, const double* w, double a", "x[i] = a * x[i] * x[i] * w[i] + exp(x[i] * w[(i + 1) % n]);")
    f = function(k, twice=True)
    own = lambda x, w, a: f(x, w, a, 5)  # noqa: E731
    theirs = lambda x, w, a: a * x * x * w + torch.exp(x * w.roll(-1))  # noqa: E731
    x, w, v = (0.3 * leaf(5, *[1] * d).detach().reshape(5) for d in range(3))
    args, ways = (x, w, torch.tensor(0.7).double()), (v, x, torch.tensor(0.3).double())
    loss = lambda f: lambda *args: (f(*args) ** 2).sum()  # noqa: E731
    fn = torch.func
    for derive in (
        lambda f: fn.hessian(loss(f), argnums=(0, 1, 2))(*args),
        lambda f: fn.jvp(fn.grad(loss(f), argnums=(0, 1, 2)), args, ways)[1],
        lambda f: fn.jacrev(fn.jacrev(lambda x, w: loss(f)(x, w, args[2]), argnums=(0, 1)), argnums=(0, 1))(*args[:2]),
        lambda f: fn.grad(lambda w: (fn.grad(loss(f))(args[0], w, args[2]) * v).sum())(args[1]),
        lambda f: fn.vmap(fn.hessian(lambda x: loss(f)(x, *args[1:])))(torch.stack([x, v])),
        lambda f: fn.jvp(lambda v: fn.vjp(f, *args)[1](v), (v,), (x,))[1],
    ):
        ours, expected = (torch.utils._pytree.tree_leaves(derive(g)) for g in (own, theirs))
        for a, b in zip(ours, expected, strict=True):
            assert torch.allclose(a, b, rtol=1e-10)
    for g in (fn.jacrev(fn.hessian(lambda x: loss(own)(x, *args[1:]))), fn.hessian(lambda x: function(k)(x, w, 0.7, 5).sum())):
        with pytest.raises(gpuad.GpuadError, match=r"third derivatives|twice=True"):
            g(x)


def test_what_has_no_order_in_a_graph_is_refused_there() -> None:
    f = function(SQUARE)
    with pytest.raises(gpuad.LaunchError, match="not contiguous"):
        torch.func.grad(lambda x: f(x.t(), N).sum())(leaf(20, 15).detach())


def test_second_derivatives_are_asked_for() -> None:
    x = leaf()
    with pytest.raises(gpuad.GpuadError, match="twice=True"):
        torch.autograd.grad(function(SQUARE)(x, N).sum(), x, create_graph=True)
    for _ in range(2):  # the second time by the shorter way
        with pytest.raises(gpuad.GpuadError, match="twice=True"):
            torch.autograd.grad(function(SQUARE)(x, N).sum(), x, create_graph=True)
    with pytest.raises(gpuad.LaunchError, match="goes with overwrites='return'"):
        function(SQUARE, overwrites="inplace", twice=True)


def test_a_batch_of_seeds() -> None:
    """Many seeds of one launch: PyTorch batches the backward pass, and the launch is not made again."""
    x = leaf()
    seeds = torch.eye(N, dtype=torch.float64)[:4]
    changed = x * 1
    for y in (
        *(function(SQUARE)(x, N) for _ in range(2)),
        function(SQUARE, overwrites="inplace")(changed, N),
        function(SQUARE, twice=True)(x, N),
    ):
        (dx,) = torch.func.vmap(lambda seed, y=y: torch.autograd.grad(y, x, seed, retain_graph=True))(seeds)
        assert torch.allclose(dx, 2 * x * seeds)
        with pytest.raises(gpuad.LaunchError, match=r"torch\.func\.vmap"):
            torch.autograd.grad(y, x, seeds, is_grads_batched=True, retain_graph=True)


def test_inference_mode_and_arrays_that_are_left_out() -> None:
    with torch.inference_mode():
        x = torch.arange(N, dtype=torch.float64)
        function(SQUARE, overwrites="inplace")(x, N)
        assert torch.equal(x, torch.arange(N, dtype=torch.float64) ** 2) and torch.equal(function(EXP)(x * 0, N), torch.ones_like(x))
    k = body("double* x, const double* bias", "x[i] = x[i] * x[i]; if (bias != nullptr) x[i] += bias[i];")
    f = function(k)
    for bias in (None, leaf()):
        for _ in range(2):
            x = leaf()
            y = f(x, bias, N)
            y.sum().backward()
            assert torch.allclose(x.grad, 2 * x.detach()) and (bias is None or bias.grad is not None)


# --- what is refused ---------------------------------------------------------------------------------------------------------------------


def test_refusals() -> None:
    with pytest.raises(gpuad.LaunchError, match="does not write `n`"):
        function(SQUARE, outputs=["n"])
    with pytest.raises(gpuad.LaunchError, match="none of its parameters"):
        gpuad.torch.function(SQUARE, grid=lambda m: m, block=128)
    with pytest.raises(gpuad.LaunchError, match="takes 2 arguments"):
        function(SQUARE)(leaf())
    with pytest.raises(gpuad.LaunchError, match="takes a tensor, got list"):
        function(SQUARE)([1.0], N)
    with pytest.raises(gpuad.LaunchError, match="its elements are not double"):
        function(SQUARE)(leaf(dtype=torch.float32), N)
    with pytest.raises(gpuad.LaunchError, match="overwrites is"):
        function(SQUARE, overwrites="both")
    race = body("double* x", "if (i > 0) x[i] = 0.5 * x[i - 1];")
    x = leaf()
    with pytest.raises(gpuad.UnsupportedError, match="data race"):
        function(race)(x, N)
    f = function(SQUARE)
    with gpuad.Tape(), pytest.raises(gpuad.TapeError, match="inside a tape"):
        f(leaf(), N)


def test_gradients_follow_a_launch_that_is_not_compiled_code() -> None:
    """Where the data decide (two threads may write to one element), each launch is looked at: right, or refused."""
    k = body("const double* x, const int* at, double* y", "y[at[i]] = x[i] * x[i];")
    f = gpuad.torch.function(k, grid=1, block=128, outputs={"y": "x"})
    x = leaf(100)
    order = torch.randperm(100).to(torch.int32)
    f(x, order, 100).sum().backward()
    assert torch.allclose(x.grad, 2 * x.detach())
    with pytest.raises(gpuad.LaunchError, match="two threads write"):
        f(x, torch.zeros(100, dtype=torch.int32), 100)


def test_arrays_are_shared_with_numpy() -> None:
    x = np.arange(float(N))
    with torch.no_grad():
        function(SQUARE, overwrites="inplace")(torch.from_numpy(x), N)
    assert np.array_equal(x, np.arange(float(N)) ** 2)
