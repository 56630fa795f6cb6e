"""Reversal within a number of bytes: what is stored, what runs again, and what that costs.

`rerun` says what each operation reads and writes when it runs again, or why it may not; `program_states` is a recording as it runs again,
with the bytes of a checkpoint before each operation. A first recording keeps what fits (`first_recording`, `budget_memory`,
`online_checkpoints`), since it is not known how long the program is. A program that is known has a schedule (`gpuad.budget`), chosen by
`planner`; `script` says what its moves mean for memory, `script_actions` what is done, `transient_memory` what an item takes while it runs;
`offload` is a second level. `budgeted` is the whole as a tape has it. For users: `outlook` (`plan()`, `tradeoff()`), `supposed_budget` (the
same of a recording without a budget), `holding` (`held()`: each byte, from when to when, and why).
"""
