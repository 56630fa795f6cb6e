"""The fence: what this frontend refuses, and the words in which it does. One test each in tests/frontend/test_fence_jit.py.

In: a node of Python's `ast` for which there is no handler. Out: the message of the UnsupportedError that its caller raises at the node, by
the kind of the node; a kind that is not listed gets a message with its name. The other texts are for refusals that a handler decides."""

from __future__ import annotations

import ast

LAMBDA = "lambdas are not supported; write a function with def"
STATEMENTS: dict[type[ast.AST], str] = {
    ast.FunctionDef: "nested functions are not supported; write a device function at the top of the file",
    ast.ClassDef: "classes in a kernel are not supported",
    ast.Delete: "del is not supported",
    ast.With: "with is not supported in a kernel",
    ast.Raise: "exceptions are not supported in a kernel",
    ast.Try: "exceptions are not supported in a kernel",
    ast.Assert: "assert is not supported in a kernel",
    ast.Import: "imports in a kernel are not supported; import at the top of the file",
    ast.ImportFrom: "imports in a kernel are not supported; import at the top of the file",
    ast.Global: "global is not supported in a kernel",
    ast.Nonlocal: "nonlocal is not supported in a kernel",
    ast.AnnAssign: "annotated assignments are not supported; the value decides the type",
    ast.Match: "match is not supported; write if and elif",
}
EXPRESSIONS: dict[type[ast.AST], str] = {
    ast.Lambda: LAMBDA,
    ast.ListComp: "comprehensions are not supported; write a loop",
    ast.GeneratorExp: "comprehensions are not supported; write a loop",
    ast.List: "lists are not supported",
    ast.Dict: "dictionaries are not supported",
    ast.JoinedStr: "strings are not supported",
    ast.NamedExpr: "assignments in expressions are not supported",
    ast.Slice: "slices are not supported; index element by element",
    ast.Starred: "* is not supported",
    ast.Await: "await is not supported",
}
SHARED_ARGUMENT = "shared memory cannot be passed to a device function; index it where it is used"
SHARED_PLACE = "jit.shared_memory is assigned to a name, outside of loops and branches: s = jit.shared_memory(numpy.float32, 32)"
SHARED_HALF = "shared memory of float16 is memory of float32 in CuPy; write jit.shared_memory(numpy.float32, ...)"
HALF_ARGUMENT = "a float16, which CuPy hands over as 2 bytes where its kernel reads a float; pass numpy.float32(x)"
PARAMETERS = "only plain positional parameters are supported: no defaults, no *args, no **kwargs"
LOOPS = "a loop runs over range(...)"
ORELSE = "else after a loop is not supported"
CHAINED = "comparisons of more than two values are not supported; write `a < b and b < c`"
TARGETS = "one target for each assignment"
SLICED = "an array is stored element by element; give all indices"
INT_MATH = "math.{0} gives an int in Python; write int(x), or cupy.{0}(x)"
INT_POWER = "powers of integers are not supported but for a small constant exponent; write products"
INT_RECIPROCAL = "the reciprocal of an integer is an integer in CuPy; write 1 / x for a float"
NUMPY_MODE = "mode='numpy' is not supported; leave it out (mode='cuda')"


def message(node: ast.AST) -> str:
    """Why a node is refused that nothing here lowers."""
    known = STATEMENTS.get(type(node)) or EXPRESSIONS.get(type(node))
    return known or f"this is not supported in a kernel ({type(node).__name__})"
