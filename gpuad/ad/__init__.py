"""Differentiation: the adjoint and the tangent of a kernel, and what the forward part records for the adjoint.

`reverse` is the reverse sweep, `adjoint` the adjoints of expressions, `derivatives` the table of partial derivatives, `forward` the tangent
pass; `recording` decides what a reverse reads again, computes again or records, `forward_sweep` runs the primal's pieces again,
`stack_layout` lowers stacks to arrays.
"""
