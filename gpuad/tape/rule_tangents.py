"""Tangents of rules: forward mode goes through a rule that is linear in groups of its arguments, or that has a tangent of its own.

In: a rule and the arguments of a call, whose shadows hold tangents. Out: the call is made, and the shadows of what it writes hold the
tangents of the result. A rule that is linear in each of several groups of arguments is its own tangent, by the rule for products: a sum
over the groups, in which one has its tangents in the place of its values.

Raises UnsupportedError for a rule that says neither, ShadowError where a tangent would be dropped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..arguments.annotations import Active, Const, Duplicated
from ..arguments.arrays import is_array, namespace
from ..arguments.recorder import unrecorded
from ..errors import ShadowError, UnsupportedError


def push_rule(rule: Any, arguments: Mapping[str, Any]) -> None:
    """Makes a call of a rule and pushes tangents through it."""
    if not rule.linear and rule.tangent is None:
        raise UnsupportedError(
            f"`{rule.name}` is a rule, whose reverse alone is stated: forward mode goes through launches, elementwise operations, and "
            "rules that are linear in some of their arguments or have a tangent. Use reverse mode, or write it as a kernel"
        )
    values = {name: _value(x) for name, x in arguments.items()}
    for name in rule.effect.writes:
        if is_array(values[name]) and values[name].dtype.kind in "fc" and not isinstance(arguments[name], Duplicated | Const):
            raise ShadowError(f"`{name}` of {rule.name} gets values with a tangent, but has no shadow: pass Duplicated({name})")
    with unrecorded():
        if rule.tangent is None:
            _push_linear(rule, arguments, values)
        else:
            rule(**values)
            given = {f"d{name}": _tangent(arguments[name], values[name]) for name in rule.effect.arrays}
            wanted = rule.tangent.__code__.co_varnames[: rule.tangent.__code__.co_argcount]
            rule.tangent(**{name: ({**values, **given})[name] for name in wanted})


def _push_linear(rule: Any, arguments: Mapping[str, Any], values: dict[str, Any]) -> None:
    overwritten = [name for name in rule.effect.overwrites if is_array(values[name])]
    totals: dict[str, Any] = {}
    for group in rule.linear:
        given = dict(values)
        for name in rule.effect.arrays:
            if name in group or name in (*rule.effect.adds, *rule.effect.sets):
                given[name] = _tangent(arguments[name], values[name])
        for name in overwritten:
            read = name in rule.effect.reads
            given[name] = given[name].copy() if read else namespace(values[name]).empty(values[name].shape, values[name].dtype)
        rule(**given)
        for name in overwritten:
            totals[name] = totals[name] + given[name] if name in totals else given[name]
    rule(**values)
    for name, total in totals.items():
        if isinstance(arguments[name], Duplicated):
            arguments[name].shadow[...] = total


def _value(x: Any) -> Any:
    return x.value if isinstance(x, Active) else x.primal if isinstance(x, Duplicated | Const) else x


def _tangent(x: Any, value: Any) -> Any:
    """The content of a shadow; zeros, of a number 0, where there is none."""
    if isinstance(x, Duplicated):
        return x.shadow
    if isinstance(x, Active):
        return x.shadow[()] if hasattr(x.shadow, "shape") else x.shadow
    return namespace(value).zeros(value.shape, value.dtype) if is_array(value) else 0 * value if value is not None else None
