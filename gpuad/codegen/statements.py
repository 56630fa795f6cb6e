"""Prints the body of a kernel: statements as C++ lines. The printer walks the folded kernel once."""

from __future__ import annotations

from ..errors import UnsupportedError
from ..ir.nodes import Accumulate, Alloc, Assign, Atomic, Barrier, Block, For, If, Let, Load, Shuffle, Stmt, Store, Take, Tell, While
from .accesses import Accesses, filled
from .control import Control
from .structure import read


class Statements(Accesses, Control):
    """Prints one kernel's body as CUDA; `lines` is the text, `helpers` the functions that it needs."""

    def block(self, block: Block) -> None:
        k = 0
        while k < len(block):
            stmt = block[k]
            values = filled(stmt, block[k + 1 :]) if isinstance(stmt, Alloc) else []
            if isinstance(stmt, Alloc) and values and self.initialised(stmt, values):
                k += len(values)
            else:
                self.statement(stmt)
            k += 1

    def statement(self, stmt: Stmt) -> None:
        match stmt:
            case Let(var=var, value=value) | Assign(var=var, value=value):
                self.define(var, value, stmt.note)
            case Load():
                self.define(stmt.var, read(stmt.buffer, stmt.index), stmt.note)
            case Store():
                self.store(stmt)
            case Accumulate():
                self.accumulate(stmt)
            case Take():
                self.take(stmt)
            case If():
                self.branch(stmt)
            case For():
                self.counted_loop(stmt)
            case While():
                self.while_loop(stmt)
            case _:
                self.rare(stmt)

    def rare(self, stmt: Stmt) -> None:
        match stmt:
            case Alloc():
                self.alloc(stmt)
            case Atomic():
                self.atomic(stmt)
            case Barrier():
                self.barrier(stmt)
            case Shuffle():
                self.shuffle(stmt)
            case Tell():
                self.tell(stmt)
            case _:
                raise UnsupportedError(f"a {type(stmt).__name__} has to be lowered before it is printed", stmt.span)
