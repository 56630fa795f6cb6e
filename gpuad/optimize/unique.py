"""Gives every definition its own variable, and every array its own buffer.

The reverse pass repeats pieces of the primal in scopes of their own, with the primal's variables. Giving each repetition fresh uids
(names stay) lets dead-code removal see that one copy is needed where another is not.

Assumes and guarantees: valid IR.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..ir.names import Names
from ..ir.nodes import (
    Accumulate,
    Alloc,
    Assign,
    Atomic,
    Block,
    Buffer,
    Carried,
    Expr,
    For,
    If,
    Let,
    Load,
    Merge,
    Pop,
    Shuffle,
    Stmt,
    Store,
    Take,
    Var,
    While,
)
from ..ir.rewrite import map_stmt_exprs, substitute


def unique(body: Block, names: Names) -> tuple[Block, dict[Var, Var], dict[Buffer, Buffer]]:
    """The body with unique definitions, and for each renamed variable and array the one that it stands for."""
    task = _Unique(names)
    return task.block(body, Env({}, {})), task.origin, task.arrays


@dataclass
class Env:
    """What stands for the variables and arrays of the scope."""

    vars: dict[Var, Expr]
    arrays: dict[Buffer, Buffer]

    def copy(self) -> Env:
        return Env(dict(self.vars), dict(self.arrays))


class _Unique:
    def __init__(self, names: Names) -> None:
        self.names = names
        self.seen: set[Var | Buffer] = set()
        self.origin: dict[Var, Var] = {}
        self.arrays: dict[Buffer, Buffer] = {}

    def define(self, var: Var, env: Env) -> Var:
        """The variable to define instead; `env` learns of it."""
        if var not in self.seen:
            self.seen.add(var)
            env.vars.pop(var, None)
            return var
        fresh = self.names.var(var.name, var.type)
        self.origin[fresh] = self.origin.get(var, var)
        env.vars[var] = fresh
        return fresh

    def memory(self, stmt: Stmt, env: Env) -> Stmt:
        """The statement on the array that stands for its own."""
        match stmt:
            case Alloc(buffer=buffer):
                fresh = buffer if buffer not in self.seen else replace(buffer, uid=self.names.uid())
                if fresh is not buffer:
                    self.arrays[fresh] = buffer
                self.seen.add(buffer)
                env.arrays[buffer] = fresh
                return replace(stmt, buffer=fresh)
            case Load(buffer=b) | Store(buffer=b) | Take(buffer=b) | Accumulate(buffer=b) | Atomic(buffer=b) if b in env.arrays:
                return replace(stmt, buffer=env.arrays[b])
        return stmt

    def block(self, block: Block, env: Env) -> Block:
        """Renames a block; `env` is changed to what holds at its end."""
        return tuple(self.stmt(s, env) for s in block)

    def stmt(self, stmt: Stmt, env: Env) -> Stmt:
        match stmt:
            case If():
                return self.branch(stmt, env)
            case For():
                return self.loop(stmt, env)
            case While():
                return self.wait(stmt, env)
        stmt = self.memory(map_stmt_exprs(stmt, lambda e: substitute(e, env.vars)), env)
        match stmt:
            case Assign(var=v):
                target = env.vars.get(v, v)
                return replace(stmt, var=target) if isinstance(target, Var) else stmt
            case Let(var=v) | Load(var=v) | Take(var=v) | Shuffle(var=v):
                return replace(stmt, var=self.define(v, env))
            case Atomic(var=Var() as v):
                return replace(stmt, var=self.define(v, env))
            case Pop(vars=vs):
                return replace(stmt, vars=tuple(self.define(v, env) for v in vs))
        return stmt

    def branch(self, stmt: If, env: Env) -> If:
        condition = substitute(stmt.condition, env.vars)
        then_env, other_env = env.copy(), env.copy()
        then, otherwise = self.block(stmt.then, then_env), self.block(stmt.otherwise, other_env)
        sides = [(substitute(m.then, then_env.vars), substitute(m.otherwise, other_env.vars)) for m in stmt.merges]
        merges = tuple(Merge(self.define(m.var, env), a, z) for m, (a, z) in zip(stmt.merges, sides, strict=True))
        return replace(stmt, condition=condition, then=then, otherwise=otherwise, merges=merges)

    def loop(self, stmt: For, env: Env) -> For:
        start, stop, step = (substitute(e, env.vars) for e in (stmt.start, stmt.stop, stmt.step))
        inner = env.copy()
        var = self.define(stmt.var, inner)
        heads = self.heads(stmt.carried, env, inner)
        body = self.block(stmt.body, inner)
        return replace(stmt, var=var, start=start, stop=stop, step=step, body=body, carried=self.tails(stmt.carried, heads, env, inner))

    def wait(self, stmt: While, env: Env) -> While:
        inner = env.copy()
        counter = self.define(stmt.counter, inner) if stmt.counter else None
        heads = self.heads(stmt.carried, env, inner)
        header = self.block(stmt.header, inner)
        condition = substitute(stmt.condition, inner.vars)
        body = self.block(stmt.body, inner)
        carried = self.tails(stmt.carried, heads, env, inner)
        count = self.define(stmt.count, env) if stmt.count else None
        return replace(stmt, header=header, condition=condition, body=body, carried=carried, counter=counter, count=count)

    def heads(self, carried: tuple[Carried, ...], env: Env, inner: Env) -> list[tuple[Var, Expr]]:
        inits = [substitute(c.init, env.vars) for c in carried]
        return [(self.define(c.var, inner), init) for c, init in zip(carried, inits, strict=True)]

    def tails(self, carried: tuple[Carried, ...], heads: list[tuple[Var, Expr]], env: Env, inner: Env) -> tuple[Carried, ...]:
        following = [substitute(c.next, inner.vars) for c in carried]
        return tuple(
            Carried(var, init, after, self.define(c.result, env)) for c, (var, init), after in zip(carried, heads, following, strict=True)
        )
