"""Replay: a program that comes again is known, and only its actions run.

`trace_replay` follows the ops of a recording until a call differs. Of the actions of a known program `copies_as_launches` makes copies
launches, `launch_joining` fuses launches that follow each other, `batching` leaves out the Python between what remains, and
`buffer_rotation` has the next state written where it will be kept.
"""
