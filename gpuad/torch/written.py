"""A node of PyTorch's graph, written for one launch: what `quick` does, without a loop or a look-up.

Of a thousand elements a launch takes less time than ten steps of Python, so where a call of compiled code is all there is to do, the two
functions of an `autograd.Function` are written out, as the module `dataclasses` writes `__init__`. Its text has numbers of the launch and
names of its arguments, nothing from outside. What needs more (logs, copies that the reverse overwrites, other types) goes the way of
`quick`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..errors import GpuadError, LaunchError
from .arrays import copied, is_lazy, relaid
from .quick import Quick


def node(quick: Quick, transformed: Callable[[], Any], pulled: Callable[..., Any], refused: Callable[[str], Exception]) -> Any:
    """The function that puts a launch into the graph, called with what is passed; None where more is to be done. `transformed`: whether a
    transform of `torch.func` is at work; `pulled`: how a reverse runs then; `refused`: the error of a second derivative."""
    plain = not (quick.logs or quick.partials or any(fresh or working for _, fresh, working, _ in quick.before))
    if not plain or any(s.model is None for s in quick.shadows) or any(type_ is not None for _, type_ in quick.wanted):
        return None
    names = {
        "zeros": torch.zeros_like, "copied": copied, "relaid": relaid, "is_grad_enabled": torch.is_grad_enabled, "transformed": transformed,
        "lazy": is_lazy, "pulled": pulled, "refused": lambda: refused(quick.split.kernel.name), "again": _again(quick), "failed": _failed,
        "pack": dict(quick.packers), "layouts": quick.layouts, "fresh": dict(quick.fresh), "models": {s.position: s for s in quick.shadows},
        "launch": quick.launch, "stages": quick.stages,
    }  # fmt: skip
    exec(compile("\n".join([*_forward(quick), *_backward(quick)]), f"<{quick.split.kernel.name} for PyTorch>", "exec"), names)
    parts = {"forward": staticmethod(names["forward"]), "backward": staticmethod(names["backward"])}
    made: Any = type(f"gpuad_{quick.split.kernel.function.name}", (torch.autograd.Function,), parts)
    return made.apply


def _again(quick: Quick) -> Callable[..., Any]:
    """A reverse as a function of its seeds alone, for a transform."""
    return lambda kept, floats: lambda *seeds: quick.gradients(quick.reverse(kept, seeds, floats))


def _failed() -> GpuadError:
    return LaunchError("a launch is out of memory")


def _forward(quick: Quick) -> list[str]:
    own = {k: f"x{k}" for k in range(quick.count)}
    lines = [f"def forward(ctx, {', '.join(f'x{k}' for k in quick.passed)}):"]
    kept_before = {k: f"b{k}" if quick.in_place else f"x{k}" for k, *_ in quick.before}
    cloned = () if quick.in_place else quick.cloned
    lines += [f"    z{k} = zeros(fresh[{k}])" for k, _ in quick.fresh]
    lines += [f"    z{k} = copied(x{k})" for k in cloned]
    lines += [f"    b{k} = copied(x{k})" for k, *_ in quick.before if quick.in_place]
    own |= {k: f"z{k}" for k in (*(k for k, _ in quick.fresh), *cloned)}
    lines += [f"    p{k} = pack[{k}](x{k})" for k, _ in quick.packers]
    lines += _launch("launch", quick.launch.picked, _addresses(quick, own), quick.forward_table)
    changed = [f"x{k}" for k in quick.returned if k in quick.passed] if quick.in_place else []
    lines += [f"    ctx.mark_dirty({', '.join(changed)})"] if changed else []
    kept = [*(own[k] for k in quick.reads), *kept_before.values()]
    lines += [f"    ctx.save_for_backward({', '.join(kept)})"] if kept else []
    lines += [f"    ctx.floats = ({''.join(f'p{k}, ' for k, _ in quick.packers)})"]
    lines += ["    ctx.set_materialize_grads(False)"] if len(quick.returned) > 1 else []
    return [*lines, f"    return {', '.join(own[k] for k in quick.returned)}", ""]


def _addresses(quick: Quick, own: dict[int, str]) -> dict[int, str]:
    """What stands in the entries of a table that are arguments."""
    floats = {k: f"p{k}" for k, _ in quick.packers}
    return {k: f"{own[k]}.data_ptr()" if k in quick.pointers else floats.get(k, "0") for k in range(quick.count)}


def _launch(name: str, picked: Sequence[int], said: dict[int, str], table: Sequence[int]) -> list[str]:
    given = ", ".join(said[k] if k in said else str(table[k]) for k in picked)
    return [f"    if {name}.entry({name}.geometry, {name}.pack({given})):", "        raise failed()"]


def _backward(quick: Quick) -> list[str]:
    seeds = [f"s{j}" for j in range(len(quick.returned))]
    nothing = ", ".join("None" for _ in quick.wanted)
    lines = [f"def backward(ctx, {', '.join(seeds)}):", "    if is_grad_enabled():", "        raise refused()"]
    lines += [f"    if {' is None and '.join(seeds)} is None:", f"        return {nothing}"]
    lines += ["    if transformed() is not None:", f"        return pulled(again(ctx.saved_tensors, ctx.floats), ({', '.join(seeds)},))"]
    own = {k: f"x{k}" for k in quick.reads}
    entries = {k: f"b{k}" for k, *_ in quick.before}
    kept = [*own.values(), *entries.values()]
    lines += [f"    {', '.join(kept)}, = ctx.saved_tensors"] if kept else []
    for name, k in [*((n, k) for k, n in own.items()), *((n, k) for k, n in entries.items())]:
        shape, strides, _ = quick.layouts[k]
        lies = f"{name}.stride() == {strides!r} and {name}.shape == {tuple(shape)!r} and {name}.dtype is layouts[{k}][2]"
        lines += [f"    if not ({lies}):", f"        {name} = relaid({name}, layouts[{k}])"]
    if quick.packers:
        lines.append(f"    {''.join(f'p{k}, ' for k, _ in quick.packers)} = ctx.floats")
    for shadow in quick.shadows:
        lines += _shadow(shadow)
    said = _addresses(quick, {k: own.get(k, "") for k in range(quick.count)})
    said = {k: text if k in own or k not in quick.pointers else "0" for k, text in said.items()}
    said |= {quick.count + s.position: f"d{s.position}.data_ptr()" for s in quick.shadows}
    said |= {2 * quick.count + j: f"b{k}.data_ptr()" for j, (k, *_) in enumerate(quick.before)}
    for j, stage in enumerate(quick.stages):
        lines += _launch(f"stages[{j}]", stage.picked, said, quick.reverse_table)
    return [*lines, f"    return {', '.join('None' if k is None else f'd{k}' for k, _ in quick.wanted)}", ""]


def _shadow(shadow: Any) -> list[str]:
    k, j = shadow.position, shadow.seed
    made = f"models[{k}]"
    if j is None:
        return [f"    d{k} = zeros({made}.model)"]
    taken = f"s{j}" if shadow.unchanged else f"s{j}.clone()"
    return [
        f"    if s{j} is None:", f"        d{k} = zeros({made}.model)",
        f"    elif s{j}.dtype is {made}.dtype and s{j}.is_contiguous() and not lazy(s{j}):", f"        d{k} = {taken}",
        "    else:", f"        d{k} = zeros({made}.model).copy_(s{j})",
    ]  # fmt: skip
