"""What a check found: comparisons with their tolerances, and what a float type allows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One comparison: passes where `error` (relative) is at most `tolerance`."""

    name: str
    error: float
    tolerance: float

    @property
    def passed(self) -> bool:
        """False for NaN too."""
        return self.error <= self.tolerance

    def __str__(self) -> str:
        return f"{'ok    ' if self.passed else 'FAILED'} {self.name:<28} error {self.error:.1e}, tolerance {self.tolerance:.0e}"


@dataclass(frozen=True)
class Report:
    """What was compared, and what could not be: `notes` names everything that was left out."""

    kernel: str
    checks: tuple[Check, ...]
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """True if there was something to compare, and all of it agreed."""
        return bool(self.checks) and all(check.passed for check in self.checks)

    def __str__(self) -> str:
        head = f"gradient of `{self.kernel}`: {'agrees' if self.passed else 'WRONG'}"
        return "\n".join([head, *(f"  {check}" for check in self.checks), *(f"  note: {note}" for note in self.notes)])


@dataclass(frozen=True)
class Precision:
    """What a float type allows: `dot` and `taylor` tolerances, difference `step` relative to the inputs' size, `kink` the relative
    disagreement of two differences that counts as a knife edge, `unit` the rounding unit."""

    dot: float
    taylor: float
    step: float
    kink: float
    unit: float


PRECISIONS = {
    2: Precision(2e-2, 5e-2, 5e-2, 1e-1, 1e-3),
    4: Precision(1e-5, 3e-3, 5e-3, 5e-3, 1.2e-7),
    8: Precision(1e-12, 1e-7, 2e-4, 1e-5, 2.3e-16),
}
BFLOAT16 = Precision(2e-2, 1e-1, 1.5e-1, 3e-1, 4e-3)  # an eighth of a half's digits
