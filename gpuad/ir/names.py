"""Fresh variables and buffers for one kernel under construction: deterministic, so that the same input gives the same text."""

from __future__ import annotations

from .nodes import Alloc, Buffer, Kernel, Stmt, Var
from .rewrite import bound, walk_stmts
from .types import Scalar, Space


class Names:
    """Hands out uids above all that the kernel uses."""

    def __init__(self, kernel: Kernel) -> None:
        used = [p.uid for p in kernel.params]
        for stmt in walk_stmts(kernel.body):
            used.extend(_uids(stmt))
        self._next = max(used, default=0) + 1

    def var(self, name: str, type_: Scalar) -> Var:
        return Var(name, type_, self.uid())

    def buffer(self, name: str, element: Scalar, space: Space = Space.GLOBAL, length: int | None = None) -> Buffer:
        return Buffer(name, element, space, length, self.uid())

    def uid(self) -> int:
        self._next += 1
        return self._next - 1


def _uids(stmt: Stmt) -> list[int]:
    return [v.uid for v in bound(stmt)] + ([stmt.buffer.uid] if isinstance(stmt, Alloc) else [])
