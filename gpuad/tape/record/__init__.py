"""Recording: from a call to an operation with its effects, and to what is saved before it overwrites memory.

A call goes through `launch_recording` (kernels), `rule_calls` (rules) or `operation_recording` (arrays that are made, code that the tape
does not see). Each has its arguments judged by the memory behind them (`judge`), makes an operation (`operations`: `recorded_launch`,
`recorded_rule`), and has what is needed and about to be overwritten saved (`saver`). `checkpoints` decides between a copy and a few
values in its place (`checkpoint_kernels`), which a launch of a known program writes itself (`checkpoint_extraction`). What a rule declares
stands in `rule_declaration`, whether it keeps to it in `rule_checks`.
"""
