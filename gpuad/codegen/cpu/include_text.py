"""The C++ files of `include`, as text: what the CPU's text stands on, whole or function by function."""

from __future__ import annotations

from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "include"
_MARK = "//// "  # a line of `functions.hpp` that names the function which follows


def text(name: str) -> str:
    """A file."""
    return (FOLDER / name).read_text(encoding="utf-8")


@cache
def functions() -> dict[str, str]:
    """The pieces of `functions.hpp` by name."""
    pieces = ("\n" + text("functions.hpp")).split("\n" + _MARK)[1:]
    return dict(piece.removesuffix("\n").split("\n", 1) if k == len(pieces) - 1 else piece.split("\n", 1) for k, piece in enumerate(pieces))
