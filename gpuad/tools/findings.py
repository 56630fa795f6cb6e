"""A finding of any check: what is wrong, where, and what to do about it. All that goes to a reader or a runner is made from these.

`Finding` is frozen: a rule's name, level, message, file from the repository's root, line and column from 1, and further text. `RULES` has a
sentence on what each rule requires. The forms for GitHub, Code Quality and SARIF are in `tools.runner`, for pytest in `pytest_plugin`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Level: TypeAlias = 'Literal["error", "warning", "note"]'

# What is looked for, by its name in reports.
RULES: Mapping[str, str] = {
    "gradient": "The gradient agrees with differences of the kernel itself.",
    "forward": "Forward mode and reverse mode are each other's transposes.",
    "races": "No two threads touch one element between two barriers, one of them writing it.",
    "bounds": "Every access lies inside its array.",
    "determinism": "Two runs agree: the launch depends on what it is given alone.",
    "launch": "The generated kernels compile, and a block of them fits a multiprocessor.",
    "memory": "Forward and reverse take no more memory than allowed.",
    "ledger": "An adjoint is no worse than its ledger says.",
    "unsupported": "The kernel can be differentiated.",
    "sanitizer": "compute-sanitizer finds nothing.",
    "description": "The description of a launch can be read, and fits its kernel.",
}


@dataclass(frozen=True)
class Finding:
    """`rule` is one of RULES; `file` the path from the root of the repository, `line` and `column` from 1; `subject` the launch that it is
    about; `message` one sentence or more, `advice` what to do, `excerpt` the line with a caret below it, `detail` what else there is to see
    (lines of text)."""

    rule: str
    message: str
    file: str
    line: int = 1
    column: int = 1
    level: Level = "error"
    subject: str = ""
    advice: str = ""
    excerpt: str = ""
    detail: str = ""

    @property
    def place(self) -> str:
        """`file:line:column`."""
        return f"{self.file}:{self.line}:{self.column}"

    def __str__(self) -> str:
        head = f"{self.place}: {self.level}: {self.message}"
        return "\n".join(part for part in (head, self.excerpt, self.detail, self.advice) if part)
