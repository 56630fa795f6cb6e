"""The text of a module-level function with all that it uses, as lines that run elsewhere.

What a function uses are global names: other functions of its kind, modules that are not gpuad's, and constants that can be written down.
Anything else is refused, with the name: a stored program has to mean what the recording meant. So is a function that is not what its
text says: one whose file was edited since, one that goes by another's name (`functools.wraps`), one with defaults that are worked out.
"""

from __future__ import annotations
import __future__ as future

import ast
import builtins
import inspect
import symtable
import textwrap
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

from ...errors import TapeError

_HEAD = "from __future__ import annotations\n"  # annotations are not evaluated, here or there


class Portable:
    """Functions and what they use, under their own names. `taken`: names that mean something already, and the module if it is one."""

    def __init__(self, taken: Mapping[str, str | None]) -> None:
        self.taken = taken
        self.imports: dict[str, str] = {}  # name -> module
        self.texts: dict[str, str] = {}
        self.known: dict[str, Any] = {}

    def add(self, function: Callable[..., Any]) -> str:
        """Takes in a function; gives the name under which it can be called. TapeError if it cannot stand alone."""
        self._add(function.__name__, function, function.__qualname__)
        return function.__name__

    def lines(self) -> list[str]:
        """Imports, then what was taken in, each after what it was taken in for."""
        imports = [f"import {module} as {name}" if module != name else f"import {name}" for name, module in sorted(self.imports.items())]
        return [*imports, *(f"\n\n{text.rstrip()}" for text in self.texts.values())]

    def _add(self, name: str, value: Any, user: str) -> None:
        if name in self.known:
            if self.known[name] is not value:
                raise TapeError(f"two functions that rules use are called {name!r}: give one another name to store the program")
            return
        if hasattr(builtins, name) and not name.startswith("__"):  # others, and the stored program itself, mean Python's by it
            raise TapeError(f"`{name}`, which {user} uses, is a name of Python's own: give it another name to store the program")
        if isinstance(value, ModuleType):
            self._import(name, value, user)
            return
        if name in self.taken:
            raise TapeError(f"`{name}`, which {user} uses, is a name of the stored program: give it another name to store the program")
        self.known[name] = value
        if isinstance(value, FunctionType):
            self._function(name, value, user)
            return
        text = repr(value)
        if not _is_literal(text, value):
            raise TapeError(f"{user} uses `{name}`, a {type(value).__name__} that cannot be written down; hand it over as an argument")
        self.texts[name] = f"{name} = {text}\n"

    def _import(self, name: str, module: ModuleType, user: str) -> None:
        if module.__name__.partition(".")[0] in ("gpuad", "__main__"):
            raise TapeError(f"{user} uses the module {module.__name__}, which a stored program does without")
        if self.taken.get(name, module.__name__) != module.__name__:
            raise TapeError(f"{user} uses `{name}`, a name of the stored program, for the module {module.__name__}: give it another")
        self.known[name], self.imports[name] = module, module.__name__

    def _function(self, name: str, function: FunctionType, user: str) -> None:
        text = _text(function, user)
        if function.__closure__ or function.__name__ != name:
            raise TapeError(f"{user} uses `{name}`, which is no module-level function of that name")
        self.texts[name] = text  # before what it uses, which may be itself
        for used in _globals(text):
            if used in function.__globals__:
                self._add(used, function.__globals__[used], function.__qualname__)
            elif not hasattr(builtins, used):
                raise TapeError(f"{function.__qualname__} uses `{used}`, which has no meaning yet")


_FUTURE = sum({getattr(future, name).compiler_flag for name in future.all_feature_names})


def _text(function: FunctionType, user: str) -> str:
    what = f"`{function.__name__}`, which {user} needs,"
    code = function.__code__  # the text is that of the code: a function may have the name of one that it wraps
    try:
        text, lines = textwrap.dedent(inspect.getsource(code)), inspect.findsource(code)[0]
    except (OSError, TypeError):
        raise TapeError(f"the text of {what} is not at hand (defined at a prompt?)") from None
    definition = ast.parse(text).body[0]
    if not isinstance(definition, ast.FunctionDef) or text.lstrip().startswith("@"):
        raise TapeError(f"{what} is not a plain `def`")
    if definition.name != function.__name__ or code not in _codes(_compiled("".join(lines), code.co_flags & _FUTURE)):
        raise TapeError(f"{what} is not what its text says: edited since it was imported, changed on import, or renamed?")
    if not _defaults_as_written(definition.args, function):
        raise TapeError(f"a default of {what} is not a number or a string written there: the stored program would have another")
    return text


@lru_cache(8)
def _compiled(text: str, flags: int) -> CodeType | None:
    """A file's text; what surrounds a function decides how its calls are compiled. None if it is none any more."""
    try:
        module: CodeType = compile(text, "<rules>", "exec", flags=flags, dont_inherit=True)
    except SyntaxError:
        return None
    return module


def _codes(module: CodeType | None) -> Iterator[CodeType]:
    """The codes of all functions of a module."""
    for constant in module.co_consts if module is not None else ():
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _defaults_as_written(arguments: ast.arguments, function: FunctionType) -> bool:
    """True if the defaults of the parameters are literals, and still what they say."""
    named = {a.arg: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None}
    given, by_name = function.__defaults__ or (), function.__kwdefaults__ or {}
    if len(given) != len(arguments.defaults) or named.keys() != by_name.keys():
        return False
    pairs = [*zip(arguments.defaults, given, strict=True), *((d, by_name[name]) for name, d in named.items())]
    return all(_is_literal(ast.unparse(written), value) for written, value in pairs)


def _globals(text: str) -> Iterator[str]:
    """The global names that a function's text refers to, with those of the functions inside of it."""
    tables = [symtable.symtable(_HEAD + text, "<rule>", "exec")]
    own = {s.get_name() for s in tables[0].get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()}
    seen: dict[str, None] = {}
    while tables:
        table = tables.pop()
        tables.extend(table.get_children())
        seen.update({s.get_name(): None for s in table.get_symbols() if s.is_referenced() and s.is_global()})
    yield from (name for name in seen if name not in own)


def _is_literal(text: str, value: Any) -> bool:
    try:
        meant = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return False
    return type(meant) is type(value) and bool(meant == value)
