"""The surface tree of a frontend to the core IR: mutable variables, pointers, calls and early exits become single assignments, structured
control flow and named buffers. `normalize` is the page; what it gives is valid IR (`ir.verify`)."""
