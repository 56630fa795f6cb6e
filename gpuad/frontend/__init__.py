"""Kernels as their users write them, CUDA C++, CuPy's elementwise texts or `cupyx.jit` functions, to the surface tree (`ir.surface`)."""
