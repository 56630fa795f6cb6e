"""A kernel that copies or sets elements in the way in which another kernel touches them: the same threads, the same guards, the same index.

Assumes: valid IR. Guarantees: the same.
"""

from __future__ import annotations

from collections.abc import Callable

from ..ir.nodes import Accumulate, Block, Constant, Kernel, Load, Stmt, Store, Take, Var
from ..ir.rewrite import Names, edit
from ..optimize.dead_code import eliminate_dead_code


def copying_like(kernel: Kernel, stmt: Load | Store | Accumulate | Take, other: str, *, to: bool) -> Kernel:
    """The kernel that copies the elements that the statement touches, to an array called `other`, or from there. Its parameters are the
    kernel's and that array."""
    names = Names(kernel)
    far = names.buffer(other, stmt.buffer.element)
    value = names.var(stmt.buffer.name, stmt.buffer.element)
    source, target = (stmt.buffer, far) if to else (far, stmt.buffer)
    body = edit(kernel.body, _only(stmt, (Load(value, source, stmt.index), Store(target, stmt.index, value))))
    return Kernel(f"save_{stmt.buffer.name}" if to else f"copy_{other}", (*kernel.params, far), eliminate_dead_code(body), kernel.span)


def setting_like(kernel: Kernel, stmt: Load | Store | Accumulate | Take, name: str) -> Kernel:
    """The kernel that sets the elements that the statement touches to a number. Its parameters are the kernel's and that number; without a
    name it is 0."""
    value = Names(kernel).var(name, stmt.buffer.element) if name else Constant(0, stmt.buffer.element)
    body = edit(kernel.body, _only(stmt, (Store(stmt.buffer, stmt.index, value),)))
    params = (*kernel.params, value) if isinstance(value, Var) else kernel.params
    return Kernel(f"{'set' if name else 'clear'}_{stmt.buffer.name}", params, eliminate_dead_code(body), kernel.span)


def _only(stmt: Stmt, new: Block) -> Callable[[Stmt], Block | None]:
    """Memory is written only by `new`, in the place of a statement."""
    return lambda s: new if s is stmt else () if isinstance(s, Store | Accumulate | Take) else None


__all__ = ["copying_like", "setting_like"]
