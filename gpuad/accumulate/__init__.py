"""How contributions reach a shadow: plainly, by atomic addition, gathered by the thread that owns the element, or summed over blocks first.

`policy` decides for each accumulation of an adjoint and says why; `gather` turns scattered additions into a kernel that collects them, by
`access_inversion`, in the launch of `gather_launch`; `materialise` keeps what those that gather would compute again;
`reduce` and `block_reduce` sum before they add; `fixed_point` makes sums whose bits do not depend on the order of threads.
"""
