"""`PYTHONPATH=. python tests/house_figures.py`: how large the package is, and how much of it the gradient of a stencil enters.

Lines, files, classes and `Any` are counted in the text; files entered, and pairs of files whose functions call each other both ways, are
seen as `autodiff` of the stencil runs for the first time, all modules being imported before. A pair through `ir/rewrite.py`,
`analysis/flows.py`, `codegen/folded.py` or `memo.py`, which call what they are given, is a traversal or a cache at work; those are
counted apart. Words are those of names of functions and classes that the glossary replaces.
"""

from __future__ import annotations

import ast
import pkgutil
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import FrameType

import gpuad

ROOT = Path(gpuad.__file__).parent
DRIVERS = {"ir/rewrite.py", "analysis/flows.py", "codegen/folded.py", "memo.py"}
STENCIL = """
__global__ void smooth(const float* u, float* v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i < n - 1) v[i] = 0.25f * u[i - 1] + 0.5f * u[i] + 0.25f * u[i + 1];
}
"""


WORDS = frozenset(
    [
        "claims",
        "turns",
        "census",
        "dealt",
        "globally",
        "winners",
        "settle",
        "settled",
        "settling",
        "shelves",
        "crew",
        "told",
        "telling",
        "truths",
        "likeness",
        "unseen",
        "apart",
        "judged",
        "lent",
        "lending",
        "meet",
        "meets",
        "met",
        "asking",
    ]
)


def replaced_words(text: str) -> int:
    """How many words of the names that a module defines the glossary replaces."""
    names = (n.name for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.ClassDef))
    return sum(w in WORDS for name in names for w in re.findall(r"[a-z]+", re.sub(r"([A-Z])", r"_\1", name).lower()))


def text_figures() -> dict[str, int]:
    """What is counted in the package's text."""
    texts = [f.read_text(encoding="utf-8") for f in ROOT.rglob("*.py")]
    return {
        "lines": sum(t.count("\n") for t in texts),
        "files": len(texts),
        "classes": sum(len(re.findall(r"^\s*class \w", t, re.M)) for t in texts),
        "replaced words": sum(map(replaced_words, texts)),
        "nobody": sum(len(re.findall(r"\bnobody\b", t, re.I)) for t in texts),
        "Any": sum(len(re.findall(r"\bAny\b", t)) for t in texts),
    }


def place(frame: FrameType | None) -> str | None:
    """The package's file that a frame is of."""
    file = Path(frame.f_code.co_filename) if frame is not None else Path()
    return str(file.relative_to(ROOT)) if file.is_relative_to(ROOT) else None


def called(run: Callable[[], object]) -> tuple[set[str], set[tuple[str, str]]]:
    """The package's files whose functions ran, and (caller's, callee's) between two of them."""
    entered: set[str] = set()
    edges: set[tuple[str, str]] = set()

    def profile(frame: FrameType, event: str, arg: object) -> None:
        callee, caller = place(frame), place(frame.f_back)
        if event == "call" and callee is not None:
            entered.add(callee)
            if caller is not None and caller != callee:
                edges.add((caller, callee))

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    return entered, edges


def first_gradient() -> None:
    """`autodiff` of the stencil on a CPU, as a program's first."""
    import numpy as np

    n = 1000
    u, v = np.linspace(0, 1, n, dtype=np.float32), np.zeros(n, np.float32)
    du, dv = np.zeros(n, np.float32), np.ones(n, np.float32)
    kernel = gpuad.kernel(STENCIL, "smooth")
    gpuad.autodiff(kernel, (4,), (256,), (gpuad.Duplicated(u, du), gpuad.Duplicated(v, dv), np.int32(n)))


def main(given: list[str]) -> None:
    """Prints the figures; with `--files`, the files and pairs too."""
    for module in pkgutil.walk_packages([str(ROOT)], "gpuad."):
        if module.name != "gpuad.__main__":
            with suppress(ModuleNotFoundError):  # a framework that is not installed
                import_module(module.name)
    entered, edges = called(first_gradient)
    pairs = sorted({(a, b) for a, b in edges if a < b and (b, a) in edges})
    drivers = [p for p in pairs if not DRIVERS.isdisjoint(p)]
    figures = {
        **text_figures(),
        "files entered": len(entered),
        "edges between files": len(edges),
        "pairs both ways": len(pairs) - len(drivers),
        "pairs with a driver": len(drivers),
    }
    for what, figure in figures.items():
        print(f"{what:20} {figure:7,}")
    if "--files" in given:
        print(*sorted(entered), sep="\n")
        print(*(f"{a} <-> {b}" for a, b in pairs), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
