"""`python -m gpuad.cpu_device.hipcc --genco OPTIONS TEXT -o CODE`: what CuPy calls for functions of `cupyx.jit`."""

from __future__ import annotations

import sys
from pathlib import Path

from ..errors import CompileError
from .compilation import compiled


def main(arguments: list[str]) -> int:
    """Compiles the file; the exit status is 1 if it cannot be, with the compiler's message."""
    text, target = Path(arguments[-3]), Path(arguments[-1])
    try:
        code, said = compiled(text.read_text(encoding="utf-8"), arguments[1:-3], [], {})
    except CompileError as error:
        print(error)
        return 1
    target.write_bytes(code)
    print(said, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
