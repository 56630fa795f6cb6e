"""docs/evidence.md: what of the generated CUDA was executed as PTX, and what the compiled code is predicted to cost, from the two records
in `benchmarks/results/`. `PYTHONPATH=. python tests/ptx_page.py` writes it."""

from __future__ import annotations

import json
from typing import Any

from ptx_table import COLUMNS, RESULT, lines

PAGE = RESULT.parents[2] / "docs" / "evidence.md"
EXECUTED = RESULT.with_name("ptx-executed.json")
TEXT = """# What NVIDIA's compiler made of it

No record in `benchmarks/results/` is of a GPU: this project has not had one. What stands here was found without it, and says less.

## Executed

NVRTC compiles every text that gpuad prints to PTX. An interpreter in `tests/ptx`, which shares no code with `gpuad/`, executes that:
registers by type and width, every memory with its bounds, alignment and initialisation checked, barriers, shuffles and votes with the
threads that they wait for, races in shared memory. Results are held against those of gpuad's reference executor, which has never seen the
text. `clang` reads the same texts where it is installed, as a second compiler.

{executed}

That is evidence for what the text means. It is none for what happens between threads of a GPU: blocks run here one after the other or in
step, memory is consistent at once, and ptxas, which makes machine code of PTX, is trusted.

## Predicted

Registers, stack, spilled registers, shared memory and the share of a multiprocessor's warps (occupancy) are what ptxas says of its code
for sm_90, of each kernel of a pass. The rest is counted by the interpreter in one launch of moderate size, a cell: elements changed
atomically, sectors of 32 bytes that warps touch over the fewest that would do (1 is coalesced), instructions of threads, and bytes of
sectors that a launch reads or writes at all. The floor is what the pass would move if all of its launches were one.

**This is a model, not a measurement**: each launch moves its sectors once, caches hold everything between, nothing but bandwidth costs
time. It gives microseconds a million cells at the {bandwidth} TB/s of an H200, and reverse over primal: what the forward pass of the
differentiated program and its reverse take beyond the primal, in primals (and, behind it, the same of the floors). A GPU's record will be
held against it.

{table}
"""


def page(table: dict[str, Any], executed: dict[str, Any]) -> str:
    """The page of these two records."""
    rows = [COLUMNS, ("---", "---", *("---:" for _ in COLUMNS[2:])), *lines(table["problems"])]
    markdown = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return TEXT.format(executed=_executed(executed), table=markdown, bandwidth=table["bandwidth"] / 1e12)


def _executed(record: dict[str, Any]) -> str:
    columns = ("tests", "failed", "skipped", "texts", "launches", "lanes", "instructions")
    rows = ["| set | " + " | ".join(columns) + " |", "| --- |" + " ---: |" * len(columns)]
    rows += [f"| {name} | " + " | ".join(f"{part[c]:,}" for c in columns) + " |" for name, part in record["sets"].items()]
    forms, tried = record["forms"], len(record["forms"]) - len(record["untried"])
    opcodes = len({form.partition(".")[0] for form in forms})
    rest = f" (not: {', '.join(f'`{form}`' for form in record['untried'])})" if record["untried"] else ""
    rows += [
        "",
        f"These texts contain {opcodes} instructions in {len(forms)} forms, each an opcode with its modifiers. All are known: one that is "
        f"not is an error. {tried} of them are tried in the interpreter's own {record['own_tests']:,} tests{rest}.",
    ]
    return "\n".join(rows)


def main() -> None:
    """Writes it."""
    records = (json.loads(file.read_text(encoding="utf-8")) for file in (RESULT, EXECUTED))
    PAGE.write_text(page(*records), encoding="utf-8")


if __name__ == "__main__":
    main()
