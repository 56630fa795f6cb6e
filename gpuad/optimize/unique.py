"""Unique definitions (alpha renaming): every definition gets its own Var, and every array its own Buffer.

The reverse pass repeats pieces of the primal in scopes of their own, with the primal's variables. Giving each repetition fresh uids (names
stay) lets dead-code removal see that one copy is needed where another is not.

Assumes and guarantees: valid IR.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..ir import nodes as ir
from ..ir.rewrite import Names, map_stmt_exprs, substitute


def make_unique(body: ir.Block, names: Names) -> tuple[ir.Block, dict[ir.Var, ir.Var], dict[ir.Buffer, ir.Buffer]]:
    """The body with unique definitions, and for each renamed variable and array the one that it stands for."""
    task = _Unique(names)
    return task.block(body, Env({}, {})), task.origin, task.arrays


@dataclass
class Env:
    """What stands for the variables and arrays of the scope."""

    vars: dict[ir.Var, ir.Expr]
    arrays: dict[ir.Buffer, ir.Buffer]

    def copy(self) -> Env:
        return Env(dict(self.vars), dict(self.arrays))


class _Unique:
    def __init__(self, names: Names) -> None:
        self.names = names
        self.seen: set[ir.Var | ir.Buffer] = set()
        self.origin: dict[ir.Var, ir.Var] = {}
        self.arrays: dict[ir.Buffer, ir.Buffer] = {}

    def define(self, var: ir.Var, env: Env) -> ir.Var:
        """The variable to define instead; `env` learns of it."""
        if var not in self.seen:
            self.seen.add(var)
            env.vars.pop(var, None)
            return var
        fresh = self.names.var(var.name, var.type)
        self.origin[fresh] = self.origin.get(var, var)
        env.vars[var] = fresh
        return fresh

    def memory(self, stmt: ir.Stmt, env: Env) -> ir.Stmt:
        """The statement on the array that stands for its own."""
        match stmt:
            case ir.Alloc(buffer=buffer):
                fresh = buffer if buffer not in self.seen else replace(buffer, uid=self.names.uid())
                if fresh is not buffer:
                    self.arrays[fresh] = buffer
                self.seen.add(buffer)
                env.arrays[buffer] = fresh
                return replace(stmt, buffer=fresh)
            case ir.Load(buffer=b) | ir.Store(buffer=b) | ir.Take(buffer=b) | ir.Accumulate(buffer=b) | ir.Atomic(buffer=b) if (
                b in env.arrays
            ):
                return replace(stmt, buffer=env.arrays[b])
        return stmt

    def block(self, block: ir.Block, env: Env) -> ir.Block:
        """Renames a block; `env` is changed to what holds at its end."""
        return tuple(self.stmt(s, env) for s in block)

    def stmt(self, stmt: ir.Stmt, env: Env) -> ir.Stmt:
        match stmt:
            case ir.If():
                return self.branch(stmt, env)
            case ir.For():
                return self.loop(stmt, env)
            case ir.While():
                return self.wait(stmt, env)
        stmt = self.memory(map_stmt_exprs(stmt, lambda e: substitute(e, env.vars)), env)
        match stmt:
            case ir.Assign(var=v):
                target = env.vars.get(v, v)
                return replace(stmt, var=target) if isinstance(target, ir.Var) else stmt
            case ir.Let(var=v) | ir.Load(var=v) | ir.Take(var=v) | ir.Shuffle(var=v):
                return replace(stmt, var=self.define(v, env))
            case ir.Atomic(var=ir.Var() as v):
                return replace(stmt, var=self.define(v, env))
            case ir.Pop(vars=vs):
                return replace(stmt, vars=tuple(self.define(v, env) for v in vs))
        return stmt

    def branch(self, stmt: ir.If, env: Env) -> ir.If:
        condition = substitute(stmt.condition, env.vars)
        then_env, other_env = env.copy(), env.copy()
        then, otherwise = self.block(stmt.then, then_env), self.block(stmt.otherwise, other_env)
        sides = [(substitute(m.then, then_env.vars), substitute(m.otherwise, other_env.vars)) for m in stmt.merges]
        merges = tuple(ir.Merge(self.define(m.var, env), a, z) for m, (a, z) in zip(stmt.merges, sides, strict=True))
        return replace(stmt, condition=condition, then=then, otherwise=otherwise, merges=merges)

    def loop(self, stmt: ir.For, env: Env) -> ir.For:
        start, stop, step = (substitute(e, env.vars) for e in (stmt.start, stmt.stop, stmt.step))
        inner = env.copy()
        var = self.define(stmt.var, inner)
        heads = self.heads(stmt.carried, env, inner)
        body = self.block(stmt.body, inner)
        return replace(stmt, var=var, start=start, stop=stop, step=step, body=body, carried=self.tails(stmt.carried, heads, env, inner))

    def wait(self, stmt: ir.While, env: Env) -> ir.While:
        inner = env.copy()
        counter = self.define(stmt.counter, inner) if stmt.counter else None
        heads = self.heads(stmt.carried, env, inner)
        header = self.block(stmt.header, inner)
        condition = substitute(stmt.condition, inner.vars)
        body = self.block(stmt.body, inner)
        carried = self.tails(stmt.carried, heads, env, inner)
        count = self.define(stmt.count, env) if stmt.count else None
        return replace(stmt, header=header, condition=condition, body=body, carried=carried, counter=counter, count=count)

    def heads(self, carried: tuple[ir.Carried, ...], env: Env, inner: Env) -> list[tuple[ir.Var, ir.Expr]]:
        inits = [substitute(c.init, env.vars) for c in carried]
        return [(self.define(c.var, inner), init) for c, init in zip(carried, inits, strict=True)]

    def tails(self, carried: tuple[ir.Carried, ...], heads: list[tuple[ir.Var, ir.Expr]], env: Env, inner: Env) -> tuple[ir.Carried, ...]:
        following = [substitute(c.next, inner.vars) for c in carried]
        return tuple(
            ir.Carried(var, init, after, self.define(c.result, env))
            for c, (var, init), after in zip(carried, heads, following, strict=True)
        )
