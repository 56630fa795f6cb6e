"""What PyTorch may hand over, in every way that it may ask: operands x types x ways, each cell beside PyTorch's gradient of plain code, or
refused in words before anything is written. What is refused stands in `REFUSED`; docs/how-to/torch.md has the table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; docs/how-to/torch.md has the command for these tests")

from torch.utils.checkpoint import checkpoint  # noqa: E402

import gpuad  # noqa: E402
import gpuad.torch  # noqa: E402

N = 6
TYPES = {
    "float16": "__half", "bfloat16": "__nv_bfloat16", "float32": "float", "float64": "double", "complex64": "complex<float>",
    "complex128": "complex<double>",
}  # fmt: skip
HEAD = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n#include <cupy/complex.cuh>\n"


@pytest.fixture(autouse=True)
def compiled_anew() -> Iterator[None]:
    yield
    torch._dynamo.reset()  # after eight versions of a function it would not be compiled any more


# --- y = w x x, and in place x = w x x, by gpuad in four ways -----------------------------------------------------------------------------


@cache
def forms(dtype: str) -> dict[str, Callable[..., Any]]:
    text = "{{ int i = threadIdx.x; if (i < n) {} = w[i] * x[i] * x[i]; }}"
    t = TYPES[dtype]
    made = f'extern "C" __global__ void made(const {t}* x, const {t}* w, {t}* y, int n) {text.format("y[i]")}'
    changed = f'extern "C" __global__ void changed({t}* x, const {t}* w, int n) {text.format("x[i]")}'
    new = gpuad.torch.function(gpuad.kernel(HEAD + made, "made"), grid=1, block=32, outputs={"y": "x"})
    kernel = gpuad.kernel(HEAD + changed, "changed")
    over = gpuad.torch.function(kernel, grid=1, block=32)
    inside = gpuad.torch.function(kernel, grid=1, block=32, overwrites="inplace")

    @gpuad.torch.program
    def recorded(x: Any, w: Any) -> Any:
        kernel[1, 32](x, w, x.size)
        return x

    return {
        "function": lambda x, w: new(x, w, x.numel()),
        "overwriting": lambda x, w: over(x, w, x.numel()),
        "inplace": lambda x, w: inside(x, w, x.numel()),
        "program": recorded,
    }


def plain(x: Any, w: Any) -> Any:
    return w.reshape(x.shape) * x * x


def in_memory(form: str) -> Callable[..., Any]:
    """The same of a transposed matrix as a kernel sees it, by its place in memory; a new output is in the order of its indices."""

    def of(x: Any, w: Any) -> Any:
        y = plain(x.T.reshape(-1), w)
        return y.reshape(x.shape) if form == "function" else y.reshape(x.T.shape).T

    return of


FORMS = ("function", "overwriting", "inplace", "program")


# --- how it is asked for ------------------------------------------------------------------------------------------------------------------


def loss_of(f: Any, operand: Any) -> Callable[..., Any]:
    """A real number that tells an output from its conjugate, its negative and its permutations."""

    def loss(x: Any, w: Any) -> Any:
        y = f(operand(x), w)
        ways = torch.arange(1, y.numel() + 1).reshape(y.shape).to(y.dtype) * (1 + 2j if y.is_complex() else 1)
        return torch.real(torch.conj(y) * y * 0.25 + ways * y).sum()

    return loss


def backward(f: Any, x: Any, w: Any) -> tuple[Any, ...]:
    x, w = (t.detach().clone().requires_grad_() for t in (x, w))
    f(x, w).backward()
    return x.grad, w.grad


def compiled(backend: str) -> Callable[..., Any]:
    return lambda f, x, w: backward(torch.compile(f, backend=backend), x, w)


def forward(f: Any, x: Any, w: Any) -> tuple[Any, ...]:
    return (torch.func.jvp(f, (x, w), (w.flip(0), x.flip(0)))[1],)


def dual(f: Any, x: Any, w: Any) -> tuple[Any, ...]:
    with torch.autograd.forward_ad.dual_level():
        own = (torch.autograd.forward_ad.make_dual(t, d) for t, d in ((x, w.flip(0)), (w, x.flip(0))))
        return (torch.autograd.forward_ad.unpack_dual(f(*own)).tangent,)


def batched(f: Any, x: Any, w: Any) -> tuple[Any, ...]:
    return tuple(torch.func.vmap(torch.func.grad(f, argnums=(0, 1)))(torch.stack([x, 2 * x]), torch.stack([w, -w])))


def twice(f: Any, x: Any, w: Any) -> tuple[Any, ...]:
    x, w = (t.detach().clone().requires_grad_() for t in (x, w))
    (dx,) = torch.autograd.grad(f(x, w), x, create_graph=True)
    return torch.autograd.grad(torch.real(dx * dx.conj()).sum(), (x, w))


WAYS: dict[str, Callable[..., Any]] = {
    "eager": backward,
    "compile": compiled("aot_eager"),
    "vmap": batched,
    "func": lambda f, x, w: torch.func.grad(f, argnums=(0, 1))(x, w),
    "checkpoint": lambda f, x, w: backward(lambda x, w: checkpoint(f, x, w, use_reentrant=False), x, w),
    "reentrant": lambda f, x, w: backward(lambda x, w: checkpoint(f, x, w, use_reentrant=True), x, w),
    "jvp": forward,
    "dual": dual,
    "twice": twice,
}
OPERANDS: dict[str, Callable[[Any], Any]] = {
    "whole": lambda x: x * 1,
    "slice": lambda x: torch.cat([x, x])[2 : N + 2],
    "strided": lambda x: torch.stack([x, 3 * x], dim=1)[:, 0],
    "flipped": lambda x: x.flip(0),
    "matrix": lambda x: (x * 1).reshape(2, 3),
    "transposed": lambda x: (x * 1).reshape(2, 3).T,
    "expanded": lambda x: x[:1].expand(N),
    "conjugate": lambda x: (x * 1).conj(),
    "negative": lambda x: torch._neg_view(x * 1),
    "imaginary part": lambda x: x.conj().imag * (1 + 1j),
    "leaf": lambda x: x,
    "view of a leaf": lambda x: x.view(N),
    "one of several views": lambda x: (x * 1).split(N)[0],
    "made without a graph": lambda x: _without_graph(x * 1),
    "detached": lambda x: x.detach() * 1,
}


def _without_graph(x: Any) -> Any:
    with torch.no_grad():
        return x.view(N)


# --- what is refused ----------------------------------------------------------------------------------------------------------------------

BY_INDEX = ("vmap", "func", "jvp")
LAZY, NO_MEMORY = ("conjugate", "negative"), "has no plain memory"
SECOND = {"program": "a program is differentiated once"}
STRIDED = {"strided": "is a strided tensor", "expanded": "is a broadcast tensor"}
IN_PLACE = {
    "expanded": "a view of a leaf Variable", "leaf": "a leaf Variable", "view of a leaf": "a view of a leaf Variable",
    "one of several views": "forbids to change in place", "made without a graph": "a leaf Variable",
}  # fmt: skip


def refused(form: str, way: str, operand: str) -> str | None:
    """Words of the error of a cell; None where it is right."""
    if form == "program":
        return "does not go through torch.func" if way in BY_INDEX else {"dual": "no forward mode", "twice": SECOND[form]}.get(way)
    if form == "inplace":
        return _in_place(way, operand)
    if way in BY_INDEX or way == "compile":
        lies = NO_MEMORY if operand in LAZY else "is not contiguous" if operand in ("strided", "transposed", "expanded") else None
        return lies if way in ("func", "jvp") or (way == "compile" and lies != NO_MEMORY) else None  # what is copied first is in order
    return _refused_operand(operand) or ("with twice=True" if way == "twice" else None)


def _refused_operand(operand: str) -> str | None:
    return NO_MEMORY if operand in LAZY else STRIDED.get(operand)


def _in_place(way: str, operand: str) -> str | None:
    if way in BY_INDEX:
        return "in place is for eager mode alone"
    if operand in IN_PLACE and way != "dual" and not (way == "reentrant" and operand == "expanded"):
        seen = way != "compile" or operand not in ("one of several views", "made without a graph")  # a graph makes views of its own
        return IN_PLACE[operand] if seen else None
    return _refused_operand(operand) or ("with twice=True" if way == "twice" else None)


def cells() -> Iterator[tuple[str, str]]:
    """Ways and operands, but for those where the loss is no function of x."""
    for way in WAYS:
        yield from ((way, operand) for operand in OPERANDS if way != "twice" or operand not in ("made without a graph", "detached"))


def numbers(dtype: str, seed: int = 0, n: int = N) -> Any:
    random = torch.Generator().manual_seed(seed)
    values = torch.randn(n, 2, dtype=torch.float64, generator=random)
    return (torch.view_as_complex(values) if "complex" in dtype else values[:, 0].contiguous()).to(getattr(torch, dtype))


def close(found: Any, expected: Any, dtype: str) -> None:
    digits = torch.finfo(getattr(torch, dtype)).eps * 16
    for a, b in zip(found, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert a.dtype == b.dtype
            assert a.shape == b.shape
            wide = torch.complex128 if a.is_complex() else torch.float64
            assert torch.allclose(a.to(wide), b.to(wide), rtol=digits, atol=digits * 8)


def compare(form: str, way: str, operand: str, dtype: str = "complex128", n: int = N) -> None:
    """One cell."""
    x, w = numbers(dtype, 0, n), numbers(dtype, 1, n)
    given = [(t, t.clone(), t._version) for t in (x, w)]
    words = refused(form, way, operand)
    by_place = operand == "transposed" and form != "program" and way != "vmap"
    own = loss_of(forms(dtype)[form], OPERANDS[operand])
    try:
        expected = WAYS[way](loss_of(in_memory(form) if by_place else plain, OPERANDS[operand]), x, w)
    except RuntimeError as error:  # PyTorch itself does not go there
        words = str(error)[:30]
    if words is None:
        close(WAYS[way](own, x, w), expected, dtype)
        return
    with pytest.raises((RuntimeError, gpuad.GpuadError), match=re.escape(words)):
        WAYS[way](own, x, w)
    assert all(torch.equal(t, before) and t._version == version for t, before, version in given)


@pytest.mark.one_of(7)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("way", "operand"), list(cells()))
def test_operands(way: str, operand: str, form: str) -> None:
    if (form, way) == ("inplace", "dual") and "leaf" in operand:
        operand = "whole"  # without `requires_grad` it would be changed, as the caller says
    compare(form, way, operand)


@pytest.mark.one_of(10)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", TYPES)
def test_types(dtype: str, way: str, form: str) -> None:
    compare(form, way, "whole", dtype)


@pytest.mark.one_of(4)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", WAYS)
def test_nothing(way: str, form: str) -> None:
    compare(form, way, "whole", "float64", 0)


@pytest.mark.one_of(6)
@pytest.mark.parametrize("form", ["function", "overwriting", "program", "inplace"])
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_other_compilers(backend: str, form: str) -> None:
    x, w = numbers("float32"), numbers("float32", 1)
    own, theirs = (compiled(backend)(loss_of(f, OPERANDS["whole"]), x, w) for f in (forms("float32")[form], plain))
    close(own, theirs, "float32")


@pytest.mark.parametrize("form", ["function", "overwriting"])
def test_a_launch_is_part_of_one_graph(form: str) -> None:
    x, w = numbers("float64"), numbers("float64", 1)
    whole = lambda f, x, w: backward(torch.compile(f, backend="aot_eager", fullgraph=True), x, w)  # noqa: E731
    own, theirs = (whole(loss_of(f, OPERANDS["whole"]), x, w) for f in (forms("float64")[form], plain))
    close(own, theirs, "float64")


# --- who wants a gradient, and what is changed in between ---------------------------------------------------------------------------------

ONLY_BACKWARD = ("eager", "compile", "checkpoint", "reentrant")


@pytest.mark.one_of(4)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", ONLY_BACKWARD)
@pytest.mark.parametrize("wanted", ["x", "w"])
def test_one_wants_a_gradient(wanted: str, way: str, form: str) -> None:
    x, w = numbers("float64"), numbers("float64", 1)
    if wanted == "x":
        derive = lambda f: WAYS[way](lambda x, _: f(x, w), x, w.clone())[:1]  # noqa: E731
    else:
        derive = lambda f: WAYS[way](lambda _, w: f(x.clone(), w), x.clone(), w)[1:]  # noqa: E731
    own, theirs = (derive(loss_of(f, OPERANDS["whole"])) for f in (forms("float64")[form], plain))
    close(own, theirs, "float64")


@pytest.mark.one_of(4)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", ONLY_BACKWARD)
def test_what_is_changed_before_the_backward_pass(way: str, form: str) -> None:
    """What a graph holds raises, and what is computed again is of what is there by then, both as for plain code; a program holds copies."""

    def outcome(f: Any, change: bool) -> Any:
        weight = numbers("float64", 1)

        def changed(x: Any, w: Any) -> Any:
            loss = {
                "eager": lambda: f(x, weight),
                "compile": lambda: torch.compile(f, backend="aot_eager")(x, weight),
                "checkpoint": lambda: checkpoint(f, x, weight, use_reentrant=False),
                "reentrant": lambda: checkpoint(f, x, weight, use_reentrant=True),
            }[way]()
            if change:
                weight.mul_(3)
            return loss

        try:
            return backward(changed, numbers("float64"), weight)
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
            return None

    copies = form == "program" and way in ("eager", "compile")
    own, theirs = outcome(loss_of(forms("float64")[form], OPERANDS["whole"]), True), outcome(loss_of(plain, OPERANDS["whole"]), not copies)
    assert (own is None) == (theirs is None)
    if own is not None:
        close(own, theirs, "float64")
