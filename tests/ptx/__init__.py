"""An interpreter of PTX as NVRTC emits it, in NumPy lanes: what NVIDIA's compiler made of a CUDA text, executed on a machine without a GPU.

It shares no code with gpuad. The threads of all blocks of a launch are the lanes of one vector, scheduled with the lowest program counter
first; every block has shared memory, every thread local memory of its own. Found and raised: accesses out of bounds, misaligned or
uninitialised, races in shared memory between barriers, barriers and warp operations that not all of their threads reach, loops that do not
end. An instruction or modifier that it does not know is an error that names it.

    source -> nvrtc.ptx -> parser.parse -> program.Program -> launch.Kernel(grid, block, args)
"""
