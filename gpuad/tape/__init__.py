"""Programs of in-place operations: what each does to memory, what its adjoint needs, and which versions have to be kept."""
