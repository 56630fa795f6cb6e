"""Memory as a tape sees it: sets of bytes, their versions, and what belongs to the tape itself.

`region` is a set of bytes of one allocation, `regions` of several, and `effects` what a kernel touches, as regions; `versions` an
allocation with what was saved of it, `version_finder` what hands an adjoint the version that it needs. `arena` is the tape's own memory,
used again by every recording; `made_arrays` and `temporaries` are arrays that operations make. `lossy` and `lossy_arrays` store versions in
fewer bits, as the user asks. `array_guard` and `change_detection` notice what is written behind the tape; `streams` orders work on a GPU;
`memory_log` counts bytes.
"""
