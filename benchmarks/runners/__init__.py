"""Who computes a problem: gpuad, a loop by hand in C++, JAX, PyTorch, Warp. One module each, all with the interface `Runner`."""
