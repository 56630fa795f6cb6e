"""Core IR to C++ text: `cuda_source` for GPUs, `host_source` for the CPU."""

from .cuda import cuda_source
from .host.source import host_source

__all__ = ["cuda_source", "host_source"]
