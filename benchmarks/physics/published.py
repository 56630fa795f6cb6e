"""What others publish of the same programs, as far as it is found in public text. Theirs are measured on GPUs, and of the programs
themselves; ours on a CPU, and of kernels of our own. The paper on Enzyme has a figure for each program, but no text that was found does."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """Of which programs a tool says what, and where."""

    tool: str
    programs: str
    says: str
    where: str


FIGURES = (
    Figure(
        "Enzyme", "DG, LBM, LULESH, RSBench, XSBench", "each gradient runs within ten times the original's time",
        "[abstract of Moses et al., SC '21](https://sc21.supercomputing.org/proceedings/tech_paper/tech_paper_pages/pap242.html)",
    ),
    Figure(
        "Enzyme", "LULESH", "what is timed is the gradient of one kernel, that of the equation of state",
        "[the paper's benchmarks, `LULESH/bench.py`](https://github.com/wsmoses/Enzyme-GPU-Tests)",
    ),
    Figure(
        "clad", "XSBench", "about 30 % faster than Enzyme", "[pull request 1878](https://github.com/vgvassilev/clad/pull/1878)",
    ),
    Figure(
        "clad", "LULESH", "faster than Enzyme, by a picture without numbers in its text",
        "[pull request 1841](https://github.com/vgvassilev/clad/pull/1841)",
    ),
    Figure(
        "clad", "LULESH", "about 5 % of the time saved by additions that need not be atomic where an index is injective",
        "[M. Andriichuk, 2025](https://compiler-research.org/blogs/gsoc25_andriichuk_final_blog/)",
    ),
)  # fmt: skip
