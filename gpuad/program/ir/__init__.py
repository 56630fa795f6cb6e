"""The representation of a recorded program: sets of bytes (`region`, `regions`), operations (`program`), and scripts (`script`).

All of it is frozen and compared by value; nothing refers to an array, an address, or a tape.
"""
