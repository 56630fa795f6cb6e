"""The tape that users hold: what `gpuad.Tape` offers, and nothing else.

What it does is done by its `ProgramRecording`, which no user sees; code of the package that is given a tape asks for it by `recording_of`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Self

from ..arguments.annotations import Duplicated
from ..public_calls import public
from .account import Account, Stats
from .blocks import Exit
from .budget.holding import Holding
from .budget.outlook import Outlook, Tradeoff
from .graph import Graph
from .program_recording import ProgramRecording

Seeds = Mapping[Any, Any]
Amount = int | float | str


class Tape:
    """Records the launches of the thread that has entered it. Use it again for the same program: its memory is kept.

        tape = gpuad.Tape()
        with tape:
            square[grid, block](X, n)           # X = Duplicated(x)
        tape.reverse({X: seed})                 # the gradient is in X.shadow

    In its block the arrays of NumPy that the recording depends on are read-only to others; after it the memory that the reverse reads live
    is compared. `restore`: after a reverse the primal arrays hold what they held before the recording. `check`: None, or 'exact': what the
    recording depends on is compared at every operation, too, by all of its bytes. `save`: 'needed', or 'all' (for tests): everything that
    is overwritten. `budget`: the most memory that the tape may add to what the caller has, in bytes (an int), as a text ('2 GiB', '500 MB',
    '25%'), or as a fraction of what is free (a float): saved versions, checkpoints, scratch, shadows of temporaries and arrays that
    operations make count, as a pool rounds them. Within it operations run again where what they overwrote was not kept, and at the end of a
    reverse arrays hold what the program left in them; BudgetError says the smallest budget that would do. `offload`: where checkpoints of a
    program that is known may go besides, 'host' (pinned memory, for a program on a GPU) or a folder, for a file that is gone with the
    process. `store`: {Duplicated: 'bfloat16', 'float16' or 'float32'}: of these arrays the overwritten versions that adjoints read are
    stored in fewer bits; `explain()` has the largest error of what was stored. A launch in which such a value decides an index, a condition
    or a whole number, and a rule whose reverse reads one, are refused. Raises TapeError for other values, and when it is entered while
    another one records in this thread.
    """

    __slots__ = ("__weakref__", "_recording")

    @public
    def __init__(
        self,
        *,
        restore: bool = False,
        check: str | None = None,
        save: str = "needed",
        budget: Amount | None = None,
        offload: str | os.PathLike[str] | None = None,
        store: Mapping[Duplicated, str] | None = None,
    ) -> None:
        self._recording = ProgramRecording(restore=restore, check=check, save=save, budget=budget, offload=offload, store=store)

    __exit__ = Exit()

    def __enter__(self) -> Self:
        self._recording.enter()
        return self

    @public
    def overwrites(self, *arrays: Any) -> None:
        """Announces that code which the tape does not see is about to overwrite the arrays, with values that depend on nothing active.
        NumPy arrays may be written until the next operation on them; shadows of theirs are taken. TapeError outside of the tape's block."""
        self._recording.overwrites(*arrays)

    @public
    def reverse(self, seeds: Seeds | None = None, *, allow_unused: bool = False, seed_rank: int | str | None = None) -> None:
        """Runs the adjoints from the last operation to the first, on the current stream and after all that was recorded on any stream.

        `seeds`: {Duplicated: array or number}, or {BatchDuplicated: a tuple of one each, or one for all}. The shadow of each array of which
        the program writes, or a seed has, any element is cleared, all of it, the seeds put in; shadows of arrays that are only read
        accumulate. (An array is what was paired with a shadow, whatever views of the pair were passed; arrays that overlap are one. Where
        indices hang on data, a launch is taken to write all of the arrays that it was passed, but nothing beside them.) Without it the
        shadows are taken as they are (the raw rule). `allow_unused`: whether it is all right that all gradients are 0, since no array or
        number with a shadow from before the recording reaches a seed, or since there are no seeds and the shadows of all that the program
        writes hold 0. `seed_rank`: of a
        program of several processes (`gpuad.distributed`) the one whose seeds count, as those of a loss that all hold; 'every': they are
        losses of their own. Raises TapeError if it is not all right, if the recording is not complete, was reversed already, memory that is
        needed has been changed since, two seeds go to one element, or a tape is recording; then no shadow was touched.
        """
        self._recording.reverse(seeds, allow_unused=allow_unused, seed_rank=seed_rank)

    @public
    def graph(self, seeds: Seeds | None = None, *, allow_unused: bool = False, seed_rank: int | str | None = None) -> Graph:
        """The recorded program and its reverse as one object, whose `.launch()` runs both again on what the same arrays hold then, without
        Python's part: on a GPU as a CUDA graph on CuPy's current stream, on a CPU as a list of prepared launches.

        `seeds`, `allow_unused`, `seed_rank`: as in `reverse`; arrays are read anew at each launch. The tape is recorded, and may have been
        reversed: a first run of both in the ordinary way is good practice, since it compiles all that is needed. A launch uses the tape's
        memory, so a recording that was not reversed before cannot be reversed any more. Raises TapeError, with the operation's name and
        place, for what cannot be captured: on a GPU a rule of your own, stacks whose depth is counted, stores that are checked at each
        launch, an operation that makes arrays or waits.
        """
        return self._recording.graph(seeds, allow_unused=allow_unused, seed_rank=seed_rank)

    @property
    def stats(self) -> Stats:
        """Bytes that the last recording and reverse took; `allocations` counts chunks of memory that had to be had."""
        return self._recording.stats

    @property
    def peak_bytes(self) -> int:
        """The most bytes that the tape has had at once since its last recording began, of all that it adds to what the caller has, as a
        pool rounds them: saved versions, checkpoints, scratch, arrays that operations made, and their shadows. Arrays and shadows of the
        caller's are not among them. What it had from earlier recordings is; without a budget it takes chunks of 1 MiB or of one array."""
        return self._recording.peak_bytes

    @public
    def plan(self, budget: Amount | None = None) -> Outlook:
        """What reversing the recorded program within a budget takes, before anything is run: the peak in bytes, checkpoints, how often
        operations run again, and how long that takes, once the program has come again. `budget`: as of `Tape`; the tape's own, or all that
        is free, if it is left out. BudgetError, with the smallest that would do, where it is too small; TapeError if no program is
        recorded."""
        return self._recording.plan(budget)

    @public
    def tradeoff(self, points: int = 24) -> Tradeoff:
        """The curve of bytes against operations that run again for the recorded program: printable, `.points`, `.picture(path)`."""
        return self._recording.tradeoff(points)

    @property
    def source(self) -> str:
        """The reverse program as flat Python, one line an operation."""
        return self._recording.source

    @public
    def save(self, folder: str | os.PathLike[str], names: Mapping[str, Any] | None = None) -> None:
        """Stores the reverse program in a folder as files that run without gpuad: `program.py` (flat Python, one line an operation),
        `program.json`, `kernels.cu`, `kernels.cpp`, `saved.bin`. The recording is not used up.

        `program.reverse(arrays, shadows)` takes whole allocations, by the names of the arguments under which they were last passed, or by
        `names`: {name: array or Duplicated}; a second `dt` is `dt_2`. Arrays that operations made, and their shadows, belong to the stored
        program, unless they are named; so do, if there are names at all, other arrays without a shadow. The reverses of rules are carried
        along as text. TapeError, and nothing is written, if the tape is not recorded, or if an operation cannot be stored: a batch of
        shadows, a kernel whose stacks get as deep as the data say, a rule whose reverse uses what cannot be written down.
        """
        self._recording.save(folder, names)

    @public
    def held(self, budget: Amount | None = None) -> Holding:
        """For each byte that the recorded program and its reversal hold: from when to when, and why. Arrays are called as the caller calls
        them. `budget`: as it would be within another budget, as of `plan`."""
        return self._recording.held(budget)

    def explain(self) -> Account:
        """For each saved piece the bytes, who needs it and who overwrites it; of a round that was recorded anew, which call was another one
        than in the round before, and why; within a budget, what its plan stores, runs again, offloads
        and keeps, with bytes and reasons. Printable; `.rows`. Arrays are called as the caller calls them, or else as the kernels do."""
        return self._recording.explain()

    def __repr__(self) -> str:
        return repr(self._recording)

    def _repr_html_(self) -> str:
        return self._recording._repr_html_()


def recording_of(tape: Tape) -> ProgramRecording:
    """The inside of a tape."""
    return tape._recording


__all__ = ["Tape", "recording_of"]
