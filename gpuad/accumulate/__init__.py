"""How contributions reach a shadow: plainly, by atomic addition, gathered by the thread that owns the element, or summed over blocks first.

`reduce` writes the decision into each accumulation of an adjoint, from what is proved of a launch (`pipeline.schedule`, `affine`); `gather`
finds, by `access_inversion`, what the thread that owns an element can collect, in launches that `gather_launch` accepts, and
`gather_kernel` is the kernel that does so; `materialise` keeps what those that gather would compute again; `block_reduce` sums before it
adds; `fixed_point` makes sums whose bits do not depend on the order of threads.
"""
