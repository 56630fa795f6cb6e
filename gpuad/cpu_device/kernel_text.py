"""Texts of CUDA kernels for a C++ compiler: which kernels and variables of a device a text has, and the table of them that goes with it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_UNSEEN = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])'", re.DOTALL)
_DYNAMIC = re.compile(
    r"\bextern\s+(?:volatile\s+)?__shared__\s+(?P<first>(?:__align__\s*\([^)]*\)\s*|alignas\s*\([^)]*\)\s*|__attribute__\s*\(\([^)]*\)\)\)?\s*)*)"
    r"(?P<type>[\w:<>, ]+?)\s*(?P<name>\w+)\s*\[\s*\]\s*;"
)
_STATIC = re.compile(r"\bstatic\s+(?=(?:const\s+)?__shared__\b)|(?<=\b__shared__)\s+static\b")
_TOGETHER = re.compile(r"sync|__shfl|__ballot|__any\b|__all\b|cooperative_groups|__match|__reduce_")
_NOT_NAMES = ("__launch_bounds__", "__attribute__", "__align__", "alignas", "__cluster_dims__", "noexcept")
_NAMED = re.compile(r"(\w+)\s*\(")
_OPENS = re.compile(r"(?:namespace\s+(?P<namespace>\w+(?:::\w+)*)?\s*|(?P<language>extern\s*\x00+)\s*)?\{|\}")


@dataclass(frozen=True)
class KernelText:
    """A text for the C++ compiler. `kernels` and `variables`: expressions for those that are there without being asked for by name."""

    text: str
    kernels: tuple[str, ...]
    variables: tuple[str, ...]
    together: bool

    def with_table(self, names: Sequence[str]) -> str:
        """The text and the table of its kernels, those that were asked for by expressions first."""
        plain = [kernel for kernel in self.kernels if kernel not in names]
        together = "true" if self.together else "false"
        kernels = "".join(f"gpuad_kernel_of<{together}>(&{kernel}), " for kernel in (*names, *plain))
        variables = "".join(f"gpuad_variable_of({variable}), " for variable in self.variables)
        table = f"extern gpuad_kernel gpuad_kernels[];\ngpuad_kernel gpuad_kernels[] = {{{kernels}{{}}}};\n"
        table += f"extern gpuad_variable gpuad_variables[];\ngpuad_variable gpuad_variables[] = {{{variables}{{}}}};\n"
        return f'{self.text}\n#line 1 "the table of kernels"\nextern "C" {{\n{table}}}\n'


def kernel_text(text: str) -> KernelText:
    """The text with shared memory as C++ has it, and what it declares."""
    text = _DYNAMIC.sub(lambda m: f"{m['type']}* {m['name']} = ({m['type']}*)gpuad_here.shared;", _STATIC.sub("", text))
    seen = _UNSEEN.sub(lambda m: "".join("\n" if c == "\n" else "\x00" if m[0][0] == '"' else " " for c in m[0]), text)
    scopes = _Scopes(seen)
    return KernelText(text, tuple(_kernels(seen, scopes)), tuple(_variables(seen, scopes)), _TOGETHER.search(seen) is not None)


class _Scopes:
    """The namespaces around each place of a text."""

    def __init__(self, seen: str) -> None:
        self.at: list[tuple[int, tuple[str | None, ...]]] = [(0, ())]  # None: a function, a class or the like
        inside: tuple[str | None, ...] = ()
        for found in _OPENS.finditer(seen):
            if found[0] == "}":
                inside = inside[:-1]
            elif found["language"]:
                inside = (*inside, "")
            else:
                inside = (*inside, found["namespace"])
            self.at.append((found.end(), inside))

    def around(self, place: int) -> str | None:
        """The name's prefix at namespace level, such as `a::b::`; None inside of anything else."""
        inside = next(scopes for start, scopes in reversed(self.at) if start <= place)
        return None if None in inside else "".join(f"{name}::" for name in inside if name)


def _declared(seen: str, word: str) -> Iterator[tuple[int, str]]:
    """Places behind a word such as `__global__`, each with what stands before it in the same declaration."""
    for found in re.finditer(rf"\b{word}\b", seen):
        before = max(seen.rfind(mark, 0, found.start()) for mark in ";{}")
        line = seen.rfind("\n", 0, found.start())
        if not seen[line + 1 : found.start()].lstrip().startswith("#"):
            yield found.end(), seen[before + 1 : found.start()]


def _kernels(seen: str, scopes: _Scopes) -> Iterator[str]:
    done = set()
    for end, before in _declared(seen, "__global__"):
        prefix = scopes.around(end)
        if prefix is None or re.search(r"\btemplate\b|\bstatic\b", before):
            continue
        name = next((m[1] for m in _NAMED.finditer(seen, end) if m[1] not in _NOT_NAMES), None)
        if name is not None and prefix + name not in done:
            done.add(prefix + name)
            yield prefix + name


def _variables(seen: str, scopes: _Scopes) -> Iterator[str]:
    done = set()
    for word in ("__constant__", "__device__"):
        for end, before in _declared(seen, word):
            prefix = scopes.around(end)
            stop = re.compile(r"[;={\[(]").search(re.sub(r"__align__\s*\([^)]*\)", lambda m: " " * len(m[0]), seen[end : end + 2000]))
            if prefix is None or stop is None or stop[0] == "(" or re.search(r"\b(?:static|template|extern)\b", before):
                continue
            names = re.findall(r"\w+", seen[end : end + stop.start()])
            if names and prefix + names[-1] not in done and names[0] not in ("static", "inline"):
                done.add(prefix + names[-1])
                yield prefix + names[-1]
