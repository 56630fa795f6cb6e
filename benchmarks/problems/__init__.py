"""The problems of the table: one module each, with its inputs, its floor, its witness, and a program for every runner."""

from ..problem import Problem
from .fisher_kpp import FisherKpp
from .gather import Gather
from .gemm import Gemm
from .heat import Heat
from .histogram import Histogram
from .lattice_boltzmann import LatticeBoltzmann
from .nbody import NBody
from .projection import Projection
from .saxpy import Saxpy
from .softmax import Softmax

PROBLEMS: tuple[Problem, ...] = (
    Saxpy(), Heat(), FisherKpp(), LatticeBoltzmann(), NBody(), Gemm(), Histogram(), Gather(), Softmax(), Projection(),
)  # fmt: skip
