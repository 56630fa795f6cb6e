"""Launches that run as one: a kernel with its own reverse, and launches of a program that follow each other thread by thread.

Takes scheduled launches (`pipeline`), and gives kernels that do the same with fewer passes over memory. A fusion is made where the numbers
of the launches show that no thread reads what another one writes (`window`).
"""

from .chain import one_after_the_other
from .forward_reverse import Fused, fusing, keeping
from .link import Link, link_of

__all__ = ["Fused", "Link", "fusing", "keeping", "link_of", "one_after_the_other"]
