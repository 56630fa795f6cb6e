"""Rearranges what only goes into sums, so that its terms share what they have in common: signs, brackets, powers of two, in rounds."""

from __future__ import annotations

from collections.abc import Collection

from ..ir.names import Names
from ..ir.nodes import Block, Var
from .factoring import Brackets
from .linearity import linear
from .powers import scaled
from .signs import Signs
from .simplify import simplify
from .thread_indices import assigned

_ROUNDS = 8


def rearranged(body: Block, sums: Collection[Var], names: Names, first_own: int) -> Block:
    """The body with what goes into the sums rearranged. `sums`: variables that are added to, and stored at the end."""
    for _ in range(_ROUNDS):
        mutable = assigned(body)
        new = simplify(Signs(linear(body, sums), mutable, sums, names).block(body, {}), first_own)
        new = simplify(Brackets(linear(new, sums), mutable, sums, names).block(new, {}), first_own)
        new = scaled(new, linear(new, sums), sums, first_own)
        if new == body:
            break
        body = new
    return body
