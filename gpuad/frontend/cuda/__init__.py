"""The CUDA frontend: CUDA C++ text to the surface tree, by way of libclang."""

from .instances import legal_name
from .parse import Module, parse

__all__ = ["Module", "legal_name", "parse"]
