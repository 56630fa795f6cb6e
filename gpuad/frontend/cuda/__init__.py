"""The CUDA frontend: CUDA C++ text to the surface tree, by way of libclang."""

from .parse import Module, parse

__all__ = ["Module", "parse"]
