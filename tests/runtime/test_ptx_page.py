"""The records of what was executed as PTX and of what it is predicted to cost: the page shows them as they are, and what a reverse pass
claims holds in the compiled code."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import ptx_nightly
import ptx_page
import ptx_table
import pytest
from launch_tools import CASES
from ptx import nvrtc
from ptx_record import Executed

from benchmarks.workload import workload
from gpuad.codegen.cuda import cuda_source
from gpuad.ir.nodes import Accumulate, Atomic, How, Kernel, Take
from gpuad.ir.rewrite import walk_stmts

TABLE, EXECUTED = (json.loads(file.read_text(encoding="utf-8")) for file in (ptx_table.RESULT, ptx_page.EXECUTED))


def test_the_page_shows_the_records() -> None:
    """`python tests/ptx_page.py` writes it."""
    assert ptx_page.PAGE.read_text(encoding="utf-8") == ptx_page.page(TABLE, EXECUTED)


def test_the_record_is_of_a_run_without_failures() -> None:
    assert not EXECUTED["untried"] and not any(part["failed"] for part in EXECUTED["sets"].values())
    assert {*EXECUTED["forms"]} <= {*EXECUTED["tried"]}


@pytest.mark.parametrize("name", ptx_table.PROBLEMS)
def test_what_the_table_says_of_gradients(name: str) -> None:
    """No registers are spilled; each pass has its floor; what is written once by a gather takes no atomic instruction."""
    row = TABLE["problems"][name]
    kernels = [k for pass_ in ("primal", "forward", "reverse") for k in row[pass_]["kernels"]]
    assert not any(k["spilled_bytes"] for k in kernels)
    assert all(row[p]["floor_bytes_a_cell"] <= row[p]["bytes_a_cell"] for p in ("primal", "forward", "reverse"))
    assert not any(k["atomic_instructions"] for k in kernels if k["kernel"].endswith("_gather"))


def claims_atomics(kernel: Kernel) -> bool:
    """Whether the IR of a kernel has an operation that is printed with atomics."""
    stmts = list(walk_stmts(kernel.body))
    return any(isinstance(s, Atomic) or (isinstance(s, Accumulate | Take) and s.how is not How.PLAIN) for s in stmts)


@pytest.mark.one_of(3)
@pytest.mark.skipif(nvrtc.library() is None, reason="there is no NVRTC: pip install nvidia-cuda-nvrtc")
@pytest.mark.parametrize("name", ptx_table.PROBLEMS)
def test_only_what_claims_atomics_has_them(name: str) -> None:
    work = workload(CASES[name], np)
    for kernel in work.generated:
        ptx, _ = nvrtc.ptx(cuda_source([kernel]), ("-std=c++17", *nvrtc.CUPY))
        assert claims_atomics(kernel) or not re.search(r"\b(atom|red)\.", ptx), kernel.name


def test_a_set_becomes_an_entry() -> None:
    record: dict[str, Any] = {"sets": {}, "forms": [], "tried": ["mov.u32"], "untried": [], "own_tests": 0}
    made = Executed(texts={"a", "b"}, launches=3, lanes=96, instructions=500)
    made.met.update({"mov.u32": 4, "add.s32": 1})
    said = "....\n2 failed, 650 passed, 3 skipped, 1 error in 998.85s (0:16:38)\n"
    ptx_nightly.add(record, "kernels", said, made)
    assert record["sets"]["kernels"] == {
        "tests": 653, "failed": 3, "skipped": 3, "texts": 2, "launches": 3, "lanes": 96, "instructions": 500,
    }  # fmt: skip
    assert record["forms"] == ["add.s32", "mov.u32"] and record["untried"] == ["add.s32"]
    ptx_nightly.add(record, "own tests", "907 passed in 60.38s", Executed(tried={"add.s32", "mov.u32"}))
    assert (record["own_tests"], record["untried"]) == (907, []) and "own tests" not in record["sets"]
