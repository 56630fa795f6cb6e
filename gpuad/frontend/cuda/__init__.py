"""The CUDA frontend: CUDA C++ text to the surface tree, by way of libclang."""

from .parse import Module, legal_name, parse

__all__ = ["Module", "legal_name", "parse"]
