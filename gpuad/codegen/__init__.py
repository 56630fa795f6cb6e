"""Core IR to C++ text: `cuda_source` for GPUs, `host_source` for the CPU."""

from .cpu.source import host_source
from .cuda import cuda_source

__all__ = ["cuda_source", "host_source"]
