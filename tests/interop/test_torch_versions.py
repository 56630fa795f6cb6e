"""PyTorch's tensors that gpuad's core overwrites: PyTorch refuses a backward pass that needs what was there, on every path that writes.

A graph keeps the tensor under test, a way of gpuad's uses it, then the graph is walked: where the way writes the tensor PyTorch has to
refuse, where it only reads it the gradient has to come. Each way is gone several times, since calls that are known go ways of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from inspect import isgeneratorfunction
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; docs/how-to/torch.md has the command for these tests")

import gpuad  # noqa: E402
from gpuad import Duplicated, api, ops  # noqa: E402
from gpuad.pipeline import executor_for_tests  # noqa: E402
from gpuad.runtime import actions, cuda  # noqa: E402
from gpuad.runtime.base import Memory, prepared  # noqa: E402
from gpuad.runtime.host import Host  # noqa: E402
from gpuad.runtime.tensor_versions import count_writes, tensor_of  # noqa: E402
from gpuad.tape.replay.batching import batched  # noqa: E402

N = 8
ROUNDS = range(4)
HEAD = 'extern "C" __global__ void k(double* y, const double* x, int n) { int i = threadIdx.x; if (i < n) '
SCALED = gpuad.kernel(HEAD + "y[i] = 2.0 * x[i]; }", "k")
GROWN = gpuad.kernel(HEAD + "y[i] = y[i] * x[i]; }", "k")
ROUNDED = gpuad.kernel(HEAD + "y[i] = y[i] * rint(x[i]); }", "k")
ASSERTED = gpuad.kernel("#include <cassert>\n" + HEAD + "{ y[i] = x[i]; assert(x[i] < 0); } }", "k")
elementwise = gpuad.ElementwiseKernel("float64 x", "float64 y", "y = 3 * x", "triple")
reduction = gpuad.ReductionKernel("float64 x", "float64 y", "x", "a + b", "y = a", "0", "total")


def tensor(content: float = 2.0) -> Any:
    return torch.full((N,), content, dtype=torch.float64)


def pair(x: Any, content: float = 1.0) -> Any:
    return Duplicated(x, np.full(N, float(content)))


class Way:
    """Something that gpuad does with a tensor, and whether it writes it. `do`: takes the tensor and what `made` gives, once for all
    rounds; where it yields, the graph keeps the tensor only then. `fresh`: with a new tensor in each round."""

    def __init__(self, writes: bool, do: Callable[..., Any], *made: Callable[[Any], Any], fresh: bool = False) -> None:
        self.writes, self.do, self.made, self.fresh = writes, do, made, fresh


def on_tape(**options: Any) -> Callable[[Any], Any]:
    return lambda t: gpuad.Tape(**options)


def taped(body: Callable[..., Any]) -> Callable[..., Any]:
    def do(t: Any, tape: Any, *others: Any) -> None:
        with tape:
            body(t, *others)

    return do


def reversed_(body: Callable[..., Any]) -> Callable[..., Any]:
    """The reverse alone, of a program whose output `body` gives."""

    def do(t: Any, tape: Any, *others: Any) -> Iterator[None]:
        with tape:
            out = body(t, *others)
        yield
        tape.reverse({out: 1.0})

    return do


def launched(kernel: Any, *args: Any) -> Any:
    kernel[1, 32](*args, N)
    return args[0]


def graphed(t: Any, tape: Any, made: dict[str, Any]) -> None:
    if "graph" not in made:
        y = pair(t)
        with tape:
            launched(SCALED, y, pair(np.ones(N)))
        made["graph"] = tape.graph({y: 1.0})
    made["graph"].launch()


def twice(t: Any) -> Any:
    y = pair(t)
    launched(GROWN, y, pair(np.ones(N)))
    return launched(GROWN, y, pair(np.ones(N)))


def unread(t: Any, tape: Any, y: Any) -> Iterator[None]:
    """A seed in a shadow that no adjoint touches."""
    x = tensor_shadow(t)
    with tape:
        launched(ROUNDED, y, x)
    yield
    tape.reverse({y: 1.0, x: 1.0})


def announced(t: Any, y: Any) -> Any:
    """What code outside of the tape overwrites has its shadow cleared."""
    tape = gpuad.arguments.recorder.current.get()
    tape.overwrites(y)
    return launched(GROWN, pair(np.ones(N)), y)


def moved_back(dx: Any, dy: Any) -> None:
    dx += dy


@gpuad.rule(reads=("x",), overwrites=("y",), reverse=moved_back)
def moved(x: Any, y: Any) -> None:
    y[...] = x


def zeros(t: Any = None) -> Any:
    return np.zeros(N)


def other(t: Any) -> Any:
    return pair(zeros())


def array(t: Any) -> Any:
    return t.numpy()


def failed(t: Any) -> None:
    with pytest.raises(gpuad.LaunchError, match="assertion"):
        ASSERTED(1, 32, (t, np.ones(N), N))


def tensor_shadow(t: Any) -> Any:
    return Duplicated(np.ones(N), t)


WAYS = {
    # single calls
    "launch": Way(True, lambda t, x: SCALED(1, 32, (t, x, N)), zeros),
    "launch of a view": Way(True, lambda t, x: SCALED(1, 32, (t.numpy()[1:], x, N - 1)), zeros),
    "launch of an array": Way(True, lambda t, a, x: SCALED(1, 32, (a, x, N)), array, zeros),
    "launch that reads": Way(False, lambda t, y: SCALED(1, 32, (y, t, N)), zeros),
    "launch that fails": Way(True, failed),
    "autodiff": Way(True, lambda t: gpuad.autodiff(SCALED, 1, 32, (pair(t), pair(np.ones(N)), N))),
    "autodiff of known pairs": Way(True, lambda t, y, x: gpuad.autodiff(SCALED, 1, 32, (y, x, N)), pair, other),
    "autodiff that reads": Way(False, lambda t, y: gpuad.autodiff(SCALED, 1, 32, (y, pair(t), N)), other),
    "autodiff, seed": Way(True, lambda t: gpuad.autodiff(SCALED, 1, 32, (tensor_shadow(t), pair(np.ones(N)), N))),
    "autodiff, gradient": Way(True, lambda t: gpuad.autodiff(SCALED, 1, 32, (pair(zeros()), tensor_shadow(t), N))),
    "autodiff, kept seed": Way(False, lambda t: gpuad.autodiff(SCALED, 1, 32, (Duplicated(zeros(), t, keep=True), pair(np.ones(N)), N))),
    "forward mode": Way(True, lambda t: gpuad.autodiff(SCALED, 1, 32, (tensor_shadow(t), pair(np.ones(N)), N), mode=gpuad.Forward)),
    "hvp": Way(
        True,
        lambda t: gpuad.hvp(GROWN, 1, 32, (pair(np.ones(N)), pair(np.ones(N)), N), (pair(np.ones(N)), tensor_shadow(t), None)),
    ),
    "elementwise": Way(True, lambda t, x: elementwise(x, t), zeros),
    "reduction": Way(True, lambda t, x: reduction(x, out=t.numpy()[0, ...]), zeros),
    "operation": Way(True, lambda t, x: ops.add(x, x, out=t.numpy()), zeros),
    "operation that reads": Way(False, lambda t, y: ops.add(t, t, out=y), zeros),
    "rule": Way(True, lambda t, x: moved(x, t.numpy()), zeros),
    # programs
    "tape": Way(True, taped(lambda t, y, x: launched(SCALED, y, x)), on_tape(), pair, other),
    "tape, new pairs": Way(True, taped(lambda t: launched(SCALED, pair(t), pair(np.ones(N)))), on_tape()),
    "tape, several launches": Way(True, taped(lambda t, y, x: [launched(GROWN, y, x) for _ in range(3)]), on_tape(), pair, other),
    "tape, copies": Way(True, taped(lambda t, y, x: y.__setitem__(..., x)), on_tape(), pair, other),
    "tape, operation": Way(True, taped(lambda t, y, x: ops.multiply(x, x, out=y)), on_tape(), pair, other),
    "tape, rule": Way(True, taped(lambda t, y, x: moved(x, y)), on_tape(), pair, other),
    "tape, exact": Way(True, taped(lambda t, y, x: launched(SCALED, y, x)), on_tape(check="exact"), pair, other),
    "tape, a budget": Way(True, taped(twice), on_tape(budget="1 MiB")),
    "tape, staged": Way(True, taped(lambda t, x: launched(SCALED, pair(t), x)), on_tape(), other, fresh=True),
    "graph": Way(True, graphed, on_tape(), lambda t: {}),
    "reverse of what it reads": Way(False, reversed_(lambda t, y: launched(SCALED, y, Duplicated(t))), on_tape(), other),
    "reverse of what it wrote": Way(False, reversed_(lambda t, x: launched(SCALED, pair(t), x)), on_tape(), other),
    "reverse, restored": Way(True, reversed_(twice), on_tape(restore=True)),
    "reverse, gradient": Way(True, reversed_(lambda t, y, x: launched(SCALED, y, x)), on_tape(), other, tensor_shadow),
    "reverse, seed": Way(True, reversed_(lambda t, y, x: launched(SCALED, y, x)), on_tape(), tensor_shadow, other),
    "reverse, unread seed": Way(True, unread, on_tape(), other),
    "reverse, rule": Way(True, reversed_(lambda t, y, x: [moved(x, y), y][1]), on_tape(), other, tensor_shadow),
    "reverse, announced": Way(True, reversed_(announced), on_tape(), tensor_shadow),
    "reverse, staged": Way(True, reversed_(lambda t, y: launched(SCALED, y, tensor_shadow(t))), on_tape(), other, fresh=True),
}


@pytest.mark.parametrize("name", WAYS)
def test_what_is_written_is_counted(name: str, executor: Any) -> None:
    way, t = WAYS[name], tensor()
    with executor_for_tests(executor):
        others = [make(t) for make in way.made]
        for _ in ROUNDS:
            t = tensor() if way.fresh else t
            with torch.no_grad():
                t.fill_(2.0)
            doing = way.do(t, *others) if isgeneratorfunction(way.do) else None
            if doing is not None:
                next(doing)
                t.fill_(2.0)
            weight = tensor(3.0).requires_grad_()
            loss = (weight * t).sum()
            if doing is None:
                way.do(t, *others)
            else:
                next(doing, None)
            if way.writes and (way.do is not failed or executor.name == "host"):  # the other one has written nothing then
                with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                    loss.backward()
            else:
                loss.backward()
                assert torch.equal(weight.grad, tensor(2.0))


@pytest.mark.cpu
def test_copies_and_clearings_count_among_launches_that_one_call_makes() -> None:
    t, other = tensor(), np.ones(N)
    args = [Memory(np.zeros(N)), Memory(other), np.int32(N)]
    launch = prepared(Host(), api.kernel(SCALED).primal(), (1, 1, 1), (32, 1, 1), args)
    for run in (lambda actions: actions, lambda actions: batched([launch, *actions, launch])):
        for action in (actions.copying(t.numpy(), other), actions.clearing(t.numpy())):
            before = t._version
            actions.perform(run([action]))
            assert t._version > before
        before = t._version
        actions.perform(run([actions.copying(other, t.numpy()), actions.clearing(other)]))
        assert t._version == before


def test_what_is_known_of_an_array() -> None:
    t = torch.zeros(4, 4, dtype=torch.complex64)
    a = t.numpy()
    views = (a, a[1:, ::2], a.T, a.real, a.reshape(-1).view(np.uint8), np.asarray(t), np.lib.stride_tricks.as_strided(a, (2,), (8,)))
    views += (np.frombuffer(a, np.uint8), np.asarray(memoryview(a)), t.detach()[1:].numpy(), np.ndarray((2,), np.uint8, a))
    for view in views:
        before = t._version
        count_writes([view])
        assert t._version == before + 1
    with torch.inference_mode():
        count_writes([torch.zeros(3).numpy()])  # which has no counter
    assert tensor_of(np.zeros(3)) is None and tensor_of(np.frombuffer(b"abcd", np.uint8)) is None


def test_arrays_of_cupy_that_were_made_of_tensors(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the stand-in for CuPy; the tensor stands for one on a device."""
    monkeypatch.setattr(cupy, "from_dlpack", lambda t: cupy.array(t.numpy()))
    t = tensor()
    y, x = cuda.of_tensor(t), cupy.ones(N)
    assert y.get().tolist() == t.tolist()
    for part, other in ((y, x), (y[2:], x[2:]), (y.reshape(2, 4), x)):
        before = t._version
        SCALED(1, 32, (x, y, N))
        assert t._version == before
        SCALED(1, 32, (part, other, part.size))
        assert t._version > before


def test_where_pytorch_is_not_loaded_nothing_of_it_is_imported() -> None:
    text = (
        "import sys, numpy as np, gpuad\n"
        "k = gpuad.kernel('extern \"C\" __global__ void k(float* x) { x[threadIdx.x] *= 2; }', 'k')\n"
        "x = gpuad.Duplicated(np.ones(4, 'f'), np.ones(4, 'f'))\n"
        "gpuad.autodiff(k, 1, 4, (x,))\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", text], check=True)
