"""The names of NumPy and CuPy for programs that know nothing of gpuad: `import gpuad.numpy as np`, `import gpuad.cupy as cp`.

`names` decides what a name of the library becomes: the library's own object wherever that does what it should, which is everything outside
of tapes; a maker of arrays gives pairs inside of one (`making`); a function that would not ask pairs what to do with them is guarded;
kernels are gpuad's (`kernels`). `tracing` puts these names in the place of a function's own for the time of a call.
"""
