"""The ledger as a file: TOML, sorted, one fact a line, so that two branches' changes meet only where they change the same fact.

    format = 1
    nvrtc = "13.0"

    ["kernels/heat.cu::heat"]
    accepted = true
    depth = 0
    kernels = ["heat_gather", "heat_reverse"]
    needs.sm_90.heat_gather = {registers = 21, spilled = 0, shared = 0}
    saved.x = {how = "copy", bytes = 4.0, why = "needed by `x[i]`, overwritten by `x[i] =`"}
    shadow.du = {way = "gather", why = "each thread of ...", accesses = ["u[i + 1]", "u[i]"]}
    text = "9f2c..."

The same kernels and the same release of NVRTC give the same bytes on every machine.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from ...errors import GpuadError
from .entries import Compiled, Entry, Needs, Shadow
from .saved import Kept

FORMAT = 1
_HEAD = "# Written by `gpuad ledger --update`; `gpuad ledger --check` compares the kernels with it. In a merge take either side of a\n"
_HEAD += "# conflict, and update again.\n"
_BARE = re.compile(r"[A-Za-z0-9_-]+\Z")
Table = TypeVar("Table")


@dataclass(frozen=True)
class Ledger:
    """Entries by the id of their example, and the release of NVRTC that compiled their texts (empty where there was none)."""

    entries: Mapping[str, Entry] = field(default_factory=dict)
    nvrtc: str = ""

    def compiled(self, nvrtc: str | None) -> Compiled:
        """What the compiler said of texts, if it was this release."""
        if not nvrtc or nvrtc != self.nvrtc:
            return {}
        found: dict[str, dict[str, Mapping[str, Needs]]] = {}
        for entry in self.entries.values():
            found.setdefault(entry.text, {}).update(entry.needs)
        return found


def written(ledger: Ledger) -> str:
    """The text of a ledger."""
    head = f"{_HEAD}format = {FORMAT}\nnvrtc = {_value(ledger.nvrtc)}\n"
    blocks = (f"[{_value(name)}]\n" + "\n".join(_lines(entry)) for name, entry in sorted(ledger.entries.items()))
    return "\n".join([head, *(f"{block}\n" for block in blocks)])


def _lines(entry: Entry) -> list[str]:
    if entry.refused:
        return ["accepted = false", f"refused = {_value(entry.refused)}"]
    facts = {"accepted": True, "kernels": list(entry.kernels), "text": entry.text}
    facts |= {} if entry.depth is None else {"depth": entry.depth}
    facts |= {f"shadow.{_key(n)}": asdict(s) for n, s in entry.shadows.items()}
    facts |= {f"saved.{_key(n)}": asdict(k) for n, k in entry.kept.items()}
    facts |= {f"needs.{_key(a)}.{_key(k)}": asdict(n) for a, kernels in entry.needs.items() for k, n in kernels.items()}
    return [f"{key} = {_value(value)}" for key, value in sorted(facts.items())]


def _key(name: str) -> str:
    return name if _BARE.match(name) else _value(name)


def _value(value: Any) -> str:
    """A value in TOML, whose strings, numbers and truth values are those of JSON but for characters that JSON leaves alone."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


def read(path: Path) -> Ledger:
    """The ledger of a file. Raises GpuadError, with the line where there is one, if it is none."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise GpuadError(f"{path}: error: the ledger cannot be read: {error}. Resolve a merge with `gpuad ledger --update`.") from None
    except FileNotFoundError:
        raise GpuadError(f"{path}: error: there is no ledger yet: write it with `gpuad ledger --update`, and commit it") from None
    if document.pop("format", None) != FORMAT:
        raise GpuadError(f"{path}: error: this ledger is of another format: write it anew with `gpuad ledger --update`")
    nvrtc = str(document.pop("nvrtc", ""))
    try:
        return Ledger({name: _entry(table) for name, table in document.items()}, nvrtc)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise GpuadError(f"{path}: error: the ledger is damaged ({error}): write it anew with `gpuad ledger --update`") from None


def _entry(table: Mapping[str, Any]) -> Entry:
    return Entry(
        refused=str(table["refused"]) if not table["accepted"] else "",
        kernels=tuple(table.get("kernels", ())),
        shadows=dict(_each(Shadow, table.get("shadow", {}))),
        kept=dict(_each(Kept, table.get("saved", {}))),
        depth=table.get("depth") if table["accepted"] else 0,
        needs={a: dict(_each(Needs, kernels)) for a, kernels in table.get("needs", {}).items()},
        text=str(table.get("text", "")),
    )


def _each(kind: type[Table], tables: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Table]]:
    for name, table in tables.items():
        given = {f.name: table[f.name] for f in fields(kind)}  # type: ignore[arg-type]
        yield name, kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in given.items()})
