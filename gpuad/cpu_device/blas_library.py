"""hipBLAS by NumPy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .library_functions import INT, LONG, POINTER, Array, Table, batch, matrix, number, vector, write

LETTERS = {"S": "f4", "D": "f8", "C": "c8", "Z": "c16"}
_TYPES = {  # hipDataType, and before it hipblasDatatype_t
    0: "f4", 1: "f8", 2: "f2", 4: "c8", 5: "c16", 150: "f2", 151: "f4", 152: "f8", 154: "c8", 155: "c16",
}  # fmt: skip
PLAIN, _TRANSPOSED, _CONJUGATED, UPPER, LEFT, _UNIT = 111, 112, 113, 121, 141, 132
ON_DEVICE = 1


def turned(operation: int, a: Array) -> Array:
    """The matrices as an operation has them: as they are, transposed or adjoint."""
    if operation == _CONJUGATED:
        return np.conj(a.swapaxes(-1, -2))
    return a.swapaxes(-1, -2) if operation == _TRANSPOSED else a


def shape_of(operation: int, rows: int, columns: int) -> tuple[int, int]:
    """The shape of the matrix that has this one after the operation."""
    return (rows, columns) if operation not in (_TRANSPOSED, _CONJUGATED) else (columns, rows)


def triangle(a: Array, uplo: int, unit: bool = False) -> Array:
    """The upper or lower triangle."""
    kept = np.triu(a) if uplo == UPPER else np.tril(a)
    if unit:
        np.fill_diagonal(kept, 1)
    return kept


def _size(v: Array) -> Array:
    return np.asarray(np.abs(v.real) + np.abs(v.imag))


def _place(choose: Callable[[Array], Any], v: Array) -> Any:
    return choose(_size(v)) + 1  # counted from 1, as in Fortran


def _put(target: Array, alpha: Any, product: Array, beta: Any) -> None:
    """target = alpha product + beta target; beta 0 does not read it."""
    target[...] = alpha * product + beta * target if beta != 0 else alpha * product


class Blas:
    """The functions for one table. `modes`: of handles whose scalars lie on the device."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.modes: dict[int, int] = {}

    def scalar(self, handle: int, address: int, dtype: str) -> Callable[[], Any]:
        """A factor: read now from the host, or from the device when its turn comes."""
        if self.modes.get(handle) == ON_DEVICE:
            return lambda: number(address, dtype)
        value = number(address, dtype)
        return lambda: value

    def result(self, handle: int, address: int, dtype: str, compute: Callable[[], Any]) -> int:
        """A number that goes to the host, which waits for it, or to the device."""

        def work() -> None:
            vector(address, dtype, 1)[...] = compute()

        return self.table.enqueue(handle, work, at_once=self.modes.get(handle) != ON_DEVICE)

    # --- products -------------------------------------------------------------------------------------------------------------------------

    def product(
        self,
        handle: int,
        factors: tuple[Callable[[], Any], Callable[[], Any]],
        a: Callable[[], Array],
        b: Callable[[], Array],
        c: Callable[[], Array],
    ) -> int:
        """c = alpha a b + beta c; beta 0 does not read c."""

        def work() -> None:
            alpha, beta = factors[0](), factors[1]()
            target = c()
            wide = np.float32 if target.dtype == np.float16 else target.dtype
            _put(target, alpha, a().astype(wide) @ b().astype(wide), beta)

        return self.table.enqueue(handle, work)

    def gemm(self, dtype: str) -> Callable[..., int]:
        def call(
            h: int, ta: int, tb: int, m: int, n: int, k: int, alpha: int, a: int, lda: int, b: int, ldb: int, beta: int, c: int, ldc: int
        ) -> int:
            return self.gemm_ex(h, ta, tb, m, n, k, alpha, a, dtype, lda, 0, b, dtype, ldb, 0, beta, c, dtype, ldc, 0, 1, dtype)

        return call

    def gemm_strided(self, dtype: str) -> Callable[..., int]:
        def call(
            h: int, ta: int, tb: int, m: int, n: int, k: int, alpha: int, a: int, lda: int, sa: int, b: int, ldb: int, sb: int,
            beta: int, c: int, ldc: int, sc: int, count: int,
        ) -> int:  # fmt: skip
            return self.gemm_ex(h, ta, tb, m, n, k, alpha, a, dtype, lda, sa, b, dtype, ldb, sb, beta, c, dtype, ldc, sc, count, dtype)

        return call

    def gemm_ex(
        self, h: int, ta: int, tb: int, m: int, n: int, k: int, alpha: int, a: int, a_type: str, lda: int, sa: int,
        b: int, b_type: str, ldb: int, sb: int, beta: int, c: int, c_type: str, ldc: int, sc: int, count: int, factor: str,
    ) -> int:  # fmt: skip
        """A batch of products with a type for each matrix and for the factors."""
        factors = self.scalar(h, alpha, factor), self.scalar(h, beta, factor)
        left = lambda: turned(ta, batch(a, a_type, *shape_of(ta, m, k), lda, sa, count))  # noqa: E731
        right = lambda: turned(tb, batch(b, b_type, *shape_of(tb, k, n), ldb, sb, count))  # noqa: E731
        return self.product(h, factors, left, right, lambda: batch(c, c_type, m, n, ldc, sc, count))

    def gemm_batched(self, dtype: str) -> Callable[..., int]:
        def call(
            h: int, ta: int, tb: int, m: int, n: int, k: int, alpha: int, a: int, lda: int, b: int, ldb: int, beta: int, c: int,
            ldc: int, count: int,
        ) -> int:  # fmt: skip
            factors = self.scalar(h, alpha, dtype), self.scalar(h, beta, dtype)

            def work() -> None:
                x, y = factors[0](), factors[1]()
                for p, q, r in zip(*(map(int, vector(place, "u8", count)) for place in (a, b, c)), strict=True):
                    left, right = (
                        turned(ta, matrix(p, dtype, *shape_of(ta, m, k), lda)),
                        turned(tb, matrix(q, dtype, *shape_of(tb, k, n), ldb)),
                    )
                    _put(matrix(r, dtype, m, n, ldc), x, left @ right, y)

            return self.table.enqueue(h, work)

        return call

    def gemm_of_types(
        self, h: int, ta: int, tb: int, m: int, n: int, k: int, alpha: int, a: int, at: int, lda: int, sa: int, b: int, bt: int, ldb: int,
        sb: int, beta: int, c: int, ct: int, ldc: int, sc: int, count: int,
    ) -> int:  # fmt: skip
        """As `gemm_ex`, with types as the library numbers them; halves are added up in float."""
        types = _TYPES[at], _TYPES[bt], _TYPES[ct]
        factor = "f4" if types[2] == "f2" else types[2]
        return self.gemm_ex(
            h, ta, tb, m, n, k, alpha, a, types[0], lda, sa, b, types[1], ldb, sb, beta, c, types[2], ldc, sc, count, factor
        )

    def gemv(self, dtype: str) -> Callable[..., int]:
        def call(h: int, op: int, m: int, n: int, alpha: int, a: int, lda: int, x: int, dx: int, beta: int, y: int, dy: int) -> int:
            rows, columns = shape_of(op, m, n)
            factors = self.scalar(h, alpha, dtype), self.scalar(h, beta, dtype)
            return self.product(
                h,
                factors,
                lambda: turned(op, matrix(a, dtype, m, n, lda)),
                lambda: vector(x, dtype, columns, dx),
                lambda: vector(y, dtype, rows, dy),
            )

        return call

    def ger(self, dtype: str, conjugate: bool) -> Callable[..., int]:
        def call(h: int, m: int, n: int, alpha: int, x: int, dx: int, y: int, dy: int, a: int, lda: int) -> int:
            factor = self.scalar(h, alpha, dtype)

            def work() -> None:
                right = vector(y, dtype, n, dy)
                matrix(a, dtype, m, n, lda)[...] += factor() * np.outer(vector(x, dtype, m, dx), np.conj(right) if conjugate else right)

            return self.table.enqueue(h, work)

        return call

    def syrk(self, dtype: str) -> Callable[..., int]:
        def call(h: int, uplo: int, op: int, n: int, k: int, alpha: int, a: int, lda: int, beta: int, c: int, ldc: int) -> int:
            x, y = self.scalar(h, alpha, dtype), self.scalar(h, beta, dtype)

            def work() -> None:
                left, target = turned(op, matrix(a, dtype, *shape_of(op, n, k), lda)), matrix(c, dtype, n, n, ldc)
                value = x() * (left @ left.T) + (y() * target if y() != 0 else 0)
                target[...] = np.where(triangle(np.ones((n, n)), uplo) != 0, value, target)

            return self.table.enqueue(h, work)

        return call

    def trsm(self, dtype: str) -> Callable[..., int]:
        def call(
            h: int, side: int, uplo: int, op: int, diagonal: int, m: int, n: int, alpha: int, a: int, lda: int, b: int, ldb: int
        ) -> int:
            factor = self.scalar(h, alpha, dtype)

            def work() -> None:
                size = m if side == LEFT else n
                left = turned(op, triangle(matrix(a, dtype, size, size, lda), uplo, diagonal == _UNIT))
                target = matrix(b, dtype, m, n, ldb)
                target[...] = np.linalg.solve(left, factor() * target) if side == LEFT else np.linalg.solve(left.T, factor() * target.T).T

            return self.table.enqueue(h, work)

        return call

    # --- sums of matrices, products with diagonals ----------------------------------------------------------------------------------------

    def geam(self, dtype: str) -> Callable[..., int]:
        def call(
            h: int, ta: int, tb: int, m: int, n: int, alpha: int, a: int, lda: int, beta: int, b: int, ldb: int, c: int, ldc: int
        ) -> int:
            x, y = self.scalar(h, alpha, dtype), self.scalar(h, beta, dtype)

            def work() -> None:
                value = np.zeros((m, n), dtype)
                for factor, op, place, leading in ((x(), ta, a, lda), (y(), tb, b, ldb)):
                    if factor != 0:
                        value += factor * turned(op, matrix(place, dtype, *shape_of(op, m, n), leading))
                matrix(c, dtype, m, n, ldc)[...] = value

            return self.table.enqueue(h, work)

        return call

    def dgmm(self, dtype: str) -> Callable[..., int]:
        def call(h: int, side: int, m: int, n: int, a: int, lda: int, x: int, dx: int, c: int, ldc: int) -> int:
            def work() -> None:
                given = matrix(a, dtype, m, n, lda)
                factor = vector(x, dtype, m, dx)[:, None] if side == LEFT else vector(x, dtype, n, dx)
                matrix(c, dtype, m, n, ldc)[...] = given * factor

            return self.table.enqueue(h, work)

        return call

    # --- vectors --------------------------------------------------------------------------------------------------------------------------

    def dot(self, dtype: str, conjugate: bool) -> Callable[..., int]:
        def call(h: int, n: int, x: int, dx: int, y: int, dy: int, place: int) -> int:
            product = np.vdot if conjugate else np.dot
            return self.result(h, place, dtype, lambda: product(vector(x, dtype, n, dx), vector(y, dtype, n, dy)))

        return call

    def reduced(self, dtype: str, to: str, reduce: Callable[[Array], Any]) -> Callable[..., int]:
        return lambda h, n, x, dx, place: self.result(h, place, to, lambda: reduce(vector(x, dtype, n, dx)))

    def axpy(self, dtype: str) -> Callable[..., int]:
        def call(h: int, n: int, alpha: int, x: int, dx: int, y: int, dy: int) -> int:
            factor = self.scalar(h, alpha, dtype)

            def work() -> None:
                vector(y, dtype, n, dy)[...] += factor() * vector(x, dtype, n, dx)

            return self.table.enqueue(h, work)

        return call

    def scal(self, dtype: str, factor_type: str) -> Callable[..., int]:
        def call(h: int, n: int, alpha: int, x: int, dx: int) -> int:
            factor = self.scalar(h, alpha, factor_type)

            def work() -> None:
                vector(x, dtype, n, dx)[...] *= factor()

            return self.table.enqueue(h, work)

        return call


def add_blas(table: Table) -> None:
    """Handles, products, sums and solves of dense matrices and vectors."""
    blas = Blas(table)
    table.add_handles("hipblasCreate", "hipblasDestroy", "hipblasSetStream", "hipblasGetStream")
    table.add("hipblasSetPointerMode", (POINTER, INT), lambda handle, mode: blas.modes.update({handle: mode}))
    table.add("hipblasGetPointerMode", (POINTER, POINTER), lambda handle, place: write(place, INT, blas.modes.get(handle, 0)))
    P, N, L = POINTER, INT, LONG
    for letter, dtype in LETTERS.items():
        real = "f4" if dtype in ("f4", "c8") else "f8"
        name = f"hipblas{letter}"
        table.add(name + "gemm", (P, N, N, N, N, N, P, P, N, P, N, P, P, N), blas.gemm(dtype))
        table.add(name + "gemmStridedBatched", (P, N, N, N, N, N, P, P, N, L, P, N, L, P, P, N, L, N), blas.gemm_strided(dtype))
        table.add(name + "gemmBatched", (P, N, N, N, N, N, P, P, N, P, N, P, P, N, N), blas.gemm_batched(dtype))
        table.add(name + "gemv", (P, N, N, N, P, P, N, P, N, P, P, N), blas.gemv(dtype))
        for suffix, conjugate in (("ger", False), ("geru", False), ("gerc", True)):
            table.add(name + suffix, (P, N, N, P, P, N, P, N, P, N), blas.ger(dtype, conjugate))
        table.add(name + "syrk", (P, N, N, N, N, P, P, N, P, P, N), blas.syrk(dtype))
        table.add(name + "trsm", (P, N, N, N, N, N, N, P, P, N, P, N), blas.trsm(dtype))
        table.add(name + "geam", (P, N, N, N, N, P, P, N, P, P, N, P, N), blas.geam(dtype))
        table.add(name + "dgmm", (P, N, N, N, P, N, P, N, P, N), blas.dgmm(dtype))
        for suffix, conjugate in (("dot", False), ("dotu", False), ("dotc", True)):
            table.add(name + suffix, (P, N, P, N, P, N, P), blas.dot(dtype, conjugate))
        lower = letter.lower()
        prefix = {"C": "Sc", "Z": "Dz"}.get(letter, letter)
        table.add(f"hipblas{prefix}nrm2", (P, N, P, N, P), blas.reduced(dtype, real, np.linalg.norm))
        table.add(f"hipblas{prefix}asum", (P, N, P, N, P), blas.reduced(dtype, real, lambda v: np.sum(_size(v))))
        for which, choose in (("amax", np.argmax), ("amin", np.argmin)):
            place_of = partial(_place, choose)
            table.add(f"hipblasI{lower}{which}", (P, N, P, N, P), blas.reduced(dtype, "i4", place_of))
        table.add(name + "axpy", (P, N, P, P, N, P, N), blas.axpy(dtype))
        table.add(name + "scal", (P, N, P, P, N), blas.scal(dtype, dtype))
    table.add("hipblasCsscal", (P, N, P, P, N), blas.scal("c8", "f4"))
    table.add("hipblasZdscal", (P, N, P, P, N), blas.scal("c16", "f8"))

    def one(h: int, ta: int, tb: int, m: int, n: int, k: int, alpha: int, a: int, at: int, lda: int, b: int, bt: int, *rest: int) -> int:
        ldb, beta, c, ct, ldc = rest[:5]
        return blas.gemm_of_types(h, ta, tb, m, n, k, alpha, a, at, lda, 0, b, bt, ldb, 0, beta, c, ct, ldc, 0, 1)

    strided = (P, N, N, N, N, N, P, P, N, N, L, P, N, N, L, P, P, N, N, L, N, N, N)
    table.add("hipblasGemmStridedBatchedEx", strided, lambda *args: blas.gemm_of_types(*args[:-2]))  # without algorithm and type of sums
    table.add("hipblasGemmEx", (P, N, N, N, N, N, P, P, N, N, P, N, N, P, P, N, N, N, N), one)
