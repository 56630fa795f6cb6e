"""What a derivative is made of: the kernel without what it says to its user, who wants to hear it once."""

from __future__ import annotations

from dataclasses import replace

from ..ir.nodes import Block, Kernel, Tell
from ..ir.rewrite import map_blocks, walk_stmts
from ..lower.tidy import tidy


def quiet(kernel: Kernel) -> Kernel:
    """The kernel without printf and assertions, and without what only they needed."""
    if not any(isinstance(s, Tell) for s in walk_stmts(kernel.body)):
        return kernel
    return replace(kernel, body=tidy(_quiet(kernel.body)))


def _quiet(block: Block) -> Block:
    return tuple(map_blocks(stmt, _quiet) for stmt in block if not isinstance(stmt, Tell))
