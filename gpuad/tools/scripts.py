"""Runs a user's script within a command, as `python script.py args` does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType

from ..errors import GpuadError


def compiled(script: Path) -> CodeType:
    """The code of a script. GpuadError, with its place, for a syntax error; OSError for a file that cannot be read."""
    try:
        return compile(script.read_bytes(), str(script), "exec")
    except SyntaxError as error:
        raise GpuadError(f"{script}:{error.lineno}: error: {error.msg}") from None


def executed(code: CodeType, script: Path, args: Sequence[str]) -> int:
    """Runs a script as the program's main module; gives its exit status. An exception is printed, and the status is 1."""
    module = ModuleType("__main__")
    module.__file__ = str(script)
    before = sys.argv, sys.path[0], sys.modules["__main__"]
    sys.argv, sys.path[0], sys.modules["__main__"] = [str(script), *args], str(script.resolve().parent), module
    try:
        exec(code, module.__dict__)
        return 0
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0
        print(stop.code, file=sys.stderr)
        return 1
    except Exception as error:
        print(f"error: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    finally:
        sys.argv, sys.path[0], sys.modules["__main__"] = before


__all__ = ["compiled", "executed"]
