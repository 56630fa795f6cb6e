"""Executors: the GPU through CuPy (`cuda`), the CPU through generated C++ (`host`), and the interpreter that finds races (`reference`);
compilers, caches, threads, and memory as they see it."""
