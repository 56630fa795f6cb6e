"""`gpuad cache info | clear`: what the cache on disk holds, compiled code and what was found out about kernels."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from ..errors import GpuadError
from ..runtime import disk_cache

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="What the cache on disk holds, and how it is emptied.")
_KINDS = {".so": "compiled kernels", ".dll": "compiled kernels", ".facts": "facts about kernels", ".gch": "precompiled headers"}


@app.command()
def info() -> None:
    """Prints where the cache is, what it holds, and how many bytes it may take."""
    with _reported():
        folder, most = disk_cache.named_folder(), disk_cache.limit()
        found = disk_cache.entries(folder)
        print(f"{folder}: {_megabytes(sum(e.nbytes for e in found))} of at most {_megabytes(most)} ({disk_cache.LIMIT})")
        for what in dict.fromkeys(_KINDS.values()):
            of_kind = [e for e in found if any(_KINDS.get(path.suffix) == what for path in e.files)]
            if of_kind:
                used = time.strftime("%Y-%m-%d %H:%M", time.localtime(of_kind[0].used))
                print(f"{len(of_kind):8} {what:22} {_megabytes(sum(e.nbytes for e in of_kind)):>10}, not used for longest: since {used}")


@app.command()
def clear() -> None:
    """Removes all that the cache holds. What is needed is made again."""
    with _reported():
        folder = disk_cache.named_folder()
        found = disk_cache.clear(folder)
        print(f"{folder}: removed {len(found)} entries, {_megabytes(sum(e.nbytes for e in found))}")


@contextmanager
def _reported() -> Iterator[None]:
    try:
        yield
    except GpuadError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(1) from None


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:.1f} MB"
