"""Programs of in-place operations: what each does to memory, what its adjoint needs, and which versions have to be kept.

In: launches of kernels, calls of rules and array operations, in the block of a `Tape`, with their shadows. Out: the adjoints of all of
them, run in reverse, each on the version of memory that its operation saw. Assumed: what the tape does not see writes to none of that
memory unless it is announced; this is watched (`memory.array_guard`, `memory.change_detection`). Guaranteed: a gradient is that of the
program as it ran, or an error comes before a shadow is touched.

What happens, in this order:

1. **Entering** (`facade.Tape`, which users hold, over `tape.ProgramRecording`; `blocks`): the program of the last time is expected again,
   or the recording begins anew.
2. **Record** (`record/`): a call is bound and judged by the memory behind its arguments (`launch_recording`, `rule_calls`,
   `operation_recording`); it becomes an operation with its effects (`recorded_launch`, `recorded_rule`). Before it runs, what it is about
   to overwrite, and an adjoint needs, is saved: copied, or as a few values that the adjoint makes of it (`saver`, `checkpoints`). What
   was recorded is a list of frozen ops (`trace`): what later passes decide about one is another op in its place.
3. **Memory** (`memory/`): bytes as regions of allocations, their saved versions, and the tape's own memory, used again by every recording.
   Buffers stand for arrays that the caller makes anew in each round (`staging`, `buffers`).
4. **Replay** (`replay/`): a program that comes again is recognised op by op (`cursor`), by the keys of its calls (`record.call_keys`), and
   only its actions run (`trace_replay`); where a call is another one (`differences`), the recording goes on from the ops before it, beside
   the round before (`previous_round`).
   Consecutive actions are merged (`launch_joining`, `batching`). `graph`, beside them, runs program and reverse as a whole.
5. **Reverse** (`reverse/`, by its `reverse_planner`): seeds are bound to shadows (`seeds`); then all is planned before the first action
   (`reversal_plan`): from the last operation to the first, which elements of each shadow are live, zero, shared or owed (`shadow_state`),
   which kernels the adjoint takes for that (`zero_regions`), and where the versions that it reads are (`memory.version_finder`).
6. **Budget** (`budget/`): within a number of bytes a schedule says what is stored and what runs again (`planner`), a script what that
   means for memory (`script`), and a reversal follows it. `plan()`, `tradeoff()` and `held()` read the same scripts.
7. **Export** (`export/`): the reverse program as files that run without gpuad.

Beside them: `rules` (array code with a reverse of its own), `account` (what was saved, and why), `array_names` (what the caller calls his
arrays), `joint` (programs of several processes), `read_program` and `read_script` (what was recorded, and its reversal, as frozen data).
"""
