"""PTX text to a module: variables, functions, instructions with their operands. Names of registers in nested scopes are made unique."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TypeAlias

from .faults import Unknown
from .types import dtype

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TOKEN = re.compile(r'"[^"]*"|[.%$A-Za-z_](?:[\w$%.]|::)*|-?0[xX][0-9a-fA-F]+U?|-?\d[\w.]*|\S')
_SPECIAL = re.compile(
    r"%(?:n?tid|n?ctaid)\.[xyz]|%(?:laneid|warpid|nwarpid|smid|nsmid|gridid|clock|clock64|clock_hi|globaltimer)$|%lanemask_\w+$|%dynamic_smem_size$|%total_smem_size$"
)
_LINKAGE = {".visible", ".extern", ".weak", ".common"}


@dataclass(frozen=True)
class Register:
    name: str
    size: int  # bytes; 0 for a predicate


@dataclass(frozen=True)
class Negated:
    """A predicate, read the other way round."""

    register: Register


@dataclass(frozen=True)
class Special:
    name: str


@dataclass(frozen=True)
class Number:
    """An immediate: `bits` are those of a float of `size` bytes, or the integer itself where that is 0."""

    bits: int
    size: int = 0


@dataclass(frozen=True)
class Symbol:
    """A variable, function or label; of a variable the address so many bytes behind its first one."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Address:
    base: Register | Symbol | Number
    offset: int


@dataclass(frozen=True)
class Group:
    """`{a, b}`, or `p|q`, or the lists of a call."""

    parts: tuple[Operand, ...]


Operand: TypeAlias = "Register | Negated | Special | Number | Symbol | Address | Group | None"  # None: `_`, a result that is dropped


@dataclass(frozen=True)
class Instruction:
    """`@guard opcode operands`; `modifiers` are what follows the opcode's first dot."""

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Register | Negated | None
    text: str

    @property
    def form(self) -> str:
        """The opcode with its modifiers."""
        return ".".join((self.opcode, *self.modifiers))


@dataclass(frozen=True)
class Label:
    name: str


@dataclass(frozen=True)
class Variable:
    """`space`: global, const, shared, local, param. `values`: numbers or names of variables, of `type` each."""

    name: str
    space: str
    type: str
    align: int
    size: int
    values: tuple[int | str, ...] = ()


@dataclass
class Function:
    name: str
    is_entry: bool
    results: list[Variable]
    params: list[Variable]
    body: list[Instruction | Label] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of `.branchtargets`
    has_body: bool = False


@dataclass
class Module:
    variables: dict[str, Variable] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)


@cache
def parse(text: str) -> Module:
    """The module of a PTX text. Unknown for what it has that NVRTC has not emitted before."""
    return _Parser(_TOKEN.findall(_COMMENT.sub(" ", text))).module()


def number(token: str) -> Number | None:
    """An immediate, if the token is one."""
    if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", token):
        return Number(int(token[2:], 16), 4)
    if re.fullmatch(r"0[dD][0-9a-fA-F]{16}", token):
        return Number(int(token[2:], 16), 8)
    digits = token.removesuffix("U")
    return Number(int(digits, 0)) if re.fullmatch(r"-?(?:0[xX][0-9a-fA-F]+|0|[1-9]\d*)", digits) else None


class _Parser:
    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.at = tokens, 0
        self.scopes: list[dict[str, Register]] = []
        self.families: list[list[tuple[str, int, int, str]]] = []  # prefix, count, bytes, suffix of the scope
        self.scope_count = 0

    # --- tokens

    def peek(self, ahead: int = 0) -> str:
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else ""

    def next(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1]

    def expect(self, token: str) -> None:
        found = self.next()
        if found != token:
            raise Unknown(f"'{found}' where '{token}' is expected, after {' '.join(self.tokens[max(self.at - 8, 0) : self.at - 1])}")

    def accept(self, token: str) -> bool:
        if self.peek() == token:
            self.at += 1
            return True
        return False

    # --- the module

    def module(self) -> Module:
        made = Module()
        while self.at < len(self.tokens):
            self._top(made)
        return made

    def _top(self, made: Module) -> None:
        word = self.next()
        while word in _LINKAGE:
            word = self.next()
        match word:
            case ".version" | ".address_size":
                self.next()
            case ".target":
                while self.peek() and not self.peek().startswith("."):
                    self.next()
            case ".entry" | ".func":
                function = self._function(word == ".entry")
                if function.has_body or function.name not in made.functions:
                    made.functions[function.name] = function
            case ".global" | ".const" | ".shared":
                variable = self._variable(word[1:])
                made.variables[variable.name] = variable
                self.expect(";")
            case _:
                raise Unknown(f"directive {word}")

    def _variable(self, space: str) -> Variable:
        """`.align 4 .b8 name[24] = {...}`, behind its space."""
        align, type_ = 1, ""
        while self.peek().startswith("."):
            word = self.next()
            if word == ".align":
                align = int(self.next())
            elif word in (".ptr", ".global", ".const", ".shared", ".local", ".noalias", ".attribute", ".managed", ".unified"):
                continue
            else:
                type_ = word[1:]
        name, count = self.next(), 1
        while self.accept("["):
            count *= int(self.next()) if self.peek() != "]" else 0
            self.expect("]")
        values = tuple(self._values()) if self.accept("=") else ()
        size = dtype(type_).itemsize
        return Variable(name, space, type_, max(align, size), size * count, values)

    def _values(self) -> Iterator[int | str]:
        depth = 0
        while True:
            token = self.peek()
            if token == ";" and not depth:
                return
            self.next()
            if token in "{}":
                depth += 1 if token == "{" else -1
            elif token != ",":
                found = number(token)
                yield found.bits if found is not None else token

    # --- functions

    def _function(self, is_entry: bool) -> Function:
        results = self._params() if self.peek() == "(" else []
        function = Function(self.next(), is_entry, results, self._params() if self.peek() == "(" else [])
        while self.peek() not in (";", "{"):
            self.next()  # .noreturn, .maxntid 256, 1, 1 and the like say how it may be launched
        if self.next() == "{":
            function.has_body = True
            self._enter()
            self._body(function)
        return function

    def _params(self) -> list[Variable]:
        found: list[Variable] = []
        self.expect("(")
        while not self.accept(")"):
            self.expect(".param")
            found.append(self._variable("param"))
            self.accept(",")
        return found

    def _enter(self) -> None:
        self.scopes.append({})
        self.families.append([])
        self.scope_count += 1

    def _leave(self) -> None:
        self.scopes.pop()
        self.families.pop()

    def _body(self, function: Function) -> None:
        while not self.accept("}"):
            if self.accept("{"):
                self._enter()
                self._body(function)
            elif self.peek(1) == ":":
                label = self.next()
                self.next()
                if self.peek() == ".branchtargets":
                    self.next()
                    function.tables[label] = tuple(t for t in self._until_semicolon() if t != ",")
                else:
                    function.body.append(Label(label))
            elif self.peek().startswith("."):
                self._directive(function)
            elif not self.accept(";"):
                function.body.append(self._instruction())
        self._leave()

    def _until_semicolon(self) -> list[str]:
        found = []
        while (token := self.next()) != ";":
            found.append(token)
        return found

    def _directive(self, function: Function) -> None:
        word = self.next()
        match word:
            case ".reg":
                self._registers()
            case ".local" | ".shared" | ".param":
                function.variables.append(self._variable(word[1:]))
                self.expect(";")
            case ".pragma":
                self._until_semicolon()
            case ".loc":
                while number(self.peek()) is not None or self.peek() == ",":
                    self.next()
            case _:
                raise Unknown(f"directive {word} in {function.name}")

    def _registers(self) -> None:
        type_ = self.next()[1:]
        size = 0 if type_ == "pred" else dtype(type_).itemsize
        while not self.accept(";"):
            name = self.next()
            suffix = f"'{self.scope_count}" if len(self.scopes) > 1 else ""
            if self.accept("<"):
                self.families[-1].append((name, int(self.next()), size, suffix))
                self.expect(">")
            else:
                self.scopes[-1][name] = Register(name + suffix, size)
            self.accept(",")

    def _register(self, name: str) -> Register | None:
        for scope, families in zip(reversed(self.scopes), reversed(self.families), strict=True):
            if name in scope:
                return scope[name]
            for prefix, count, size, suffix in families:
                rest = name.removeprefix(prefix)
                if rest != name and rest.isdigit() and int(rest) < count:
                    scope[name] = Register(name + suffix, size)
                    return scope[name]
        return None

    # --- instructions

    def _instruction(self) -> Instruction:
        begin = self.at
        guard: Register | Negated | None = None
        if self.accept("@"):
            negated = self.accept("!")
            register = self._register(self.next())
            if register is None:
                raise Unknown("a guard that is no register")
            guard = Negated(register) if negated else register
        opcode, *modifiers = self.next().split(".")
        operands = self._operands()
        return Instruction(opcode, tuple(modifiers), operands, guard, " ".join(self.tokens[begin : self.at - 1]))

    def _operands(self) -> tuple[Operand, ...]:
        found: list[Operand] = []
        while not self.accept(";"):
            operand = self._operand()
            if self.accept("|"):
                operand = Group((operand, self._operand()))
            found.append(operand)
            self.accept(",")
        return tuple(found)

    def _operand(self) -> Operand:
        token = self.next()
        if token in ("{", "("):
            parts, end = [], "}" if token == "{" else ")"
            while not self.accept(end):
                parts.append(self._operand())
                self.accept(",")
            return Group(tuple(parts))
        if token == "[":
            return self._address()
        if token == "!":
            register = self._register(self.next())
            if register is None:
                raise Unknown("'!' before what is no register")
            return Negated(register)
        if token == "_":
            return None
        found = self._plain(token)
        return Symbol(found.name, int(self.next(), 0)) if isinstance(found, Symbol) and self.accept("+") else found

    def _plain(self, token: str) -> Register | Special | Number | Symbol:
        if _SPECIAL.match(token):
            return Special(token[1:])
        found = self._register(token) or number(token)
        if found is not None:
            return found
        if token.startswith("%") or not re.match(r"[$A-Za-z_]", token):
            raise Unknown(f"operand {token}")
        return Symbol(token)

    def _address(self) -> Address:
        base, offset = self._plain(self.next()), 0
        while not self.accept("]"):
            sign = -1 if self.next() == "-" else 1
            offset += sign * int(self.next(), 0)
        if isinstance(base, Special):
            raise Unknown(f"an address %{base.name}")
        return Address(base, offset)
