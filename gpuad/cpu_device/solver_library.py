"""rocSOLVER by NumPy: factorisations in LAPACK's storage."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .blas_library import LEFT, LETTERS, PLAIN, UPPER, triangle, turned
from .library_functions import INT, POINTER, Array, Table, matrix, vector

_WITH_VECTORS = 211
_ALL, _SMALLER, _OVERWRITE, _NONE = 191, 192, 193, 194


def factored(a: Array) -> tuple[Array, int]:
    """LU with partial pivoting, in place: the rows that changed places, from 1 on, and the first pivot that is 0, from 1 on, or 0."""
    rows, columns = a.shape
    pivots, singular = np.zeros(min(rows, columns), "i4"), 0
    for k in range(min(rows, columns)):
        p = k + int(np.argmax(np.abs(a[k:, k])))
        pivots[k] = p + 1
        if p != k:
            a[[k, p]] = a[[p, k]]
        if a[k, k] == 0:
            singular = singular or k + 1
            continue
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    return pivots, singular


def restored(factors: Array, pivots: Array) -> Array:
    """The square matrix that has these factors."""
    whole = np.tril(factors, -1) @ np.triu(factors) + np.triu(factors)
    for k, p in reversed(list(enumerate(pivots))):
        if p - 1 != k:
            whole[[k, p - 1]] = whole[[p - 1, k]]
    return whole


def reflected(a: Array, factors: Array, to: Array, adjoint: bool) -> Array:
    """The product of Householder reflections, whose vectors lie below a's diagonal, and a matrix."""
    order = range(len(factors)) if adjoint else range(len(factors) - 1, -1, -1)
    for k in order:
        v = np.concatenate((np.zeros(k, a.dtype), np.ones(1, a.dtype), a[k + 1 :, k]))
        factor = np.conj(factors[k]) if adjoint else factors[k]
        to = to - factor * np.outer(v, np.conj(v) @ to)
    return to


class Solver:
    """The functions for one table."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def potrf(self, dtype: str) -> Callable[..., int]:
        def call(h: int, uplo: int, n: int, a: int, lda: int, info: int) -> int:
            def work() -> None:
                given, state = matrix(a, dtype, n, n, lda), vector(info, "i4", 1)
                whole = triangle(given, uplo)
                lower = np.conj(whole.T) if uplo == UPPER else whole
                try:
                    made = np.linalg.cholesky(lower)
                    state[...] = 0
                except np.linalg.LinAlgError:
                    state[...] = 1
                    return
                kept = triangle(np.ones((n, n)), uplo) != 0
                given[...] = np.where(kept, np.conj(made.T) if uplo == UPPER else made, given)

            return self.table.enqueue(h, work)

        return call

    def potrs(self, dtype: str) -> Callable[..., int]:
        def call(h: int, uplo: int, n: int, columns: int, a: int, lda: int, b: int, ldb: int) -> int:
            def work() -> None:
                factor, target = triangle(matrix(a, dtype, n, n, lda), uplo), matrix(b, dtype, n, columns, ldb)
                lower = np.conj(factor.T) if uplo == UPPER else factor
                target[...] = np.linalg.solve(np.conj(lower.T), np.linalg.solve(lower, target))

            return self.table.enqueue(h, work)

        return call

    def getrf(self, dtype: str) -> Callable[..., int]:
        def call(h: int, m: int, n: int, a: int, lda: int, pivots: int, info: int) -> int:
            def work() -> None:
                given = matrix(a, dtype, m, n, lda)
                vector(pivots, "i4", min(m, n))[...], vector(info, "i4", 1)[...] = factored(given)

            return self.table.enqueue(h, work)

        return call

    def getrf_batched(self, dtype: str) -> Callable[..., int]:
        def call(h: int, n: int, places: int, lda: int, pivots: int, info: int, count: int) -> int:
            def work() -> None:
                for k, place in enumerate(vector(places, "u8", count)):
                    found, singular = factored(matrix(int(place), dtype, n, n, lda))
                    vector(info, "i4", count)[k] = singular
                    if pivots:
                        vector(pivots, "i4", count * n)[k * n : (k + 1) * n] = found

            return self.table.enqueue(h, work)

        return call

    def getri_batched(self, dtype: str) -> Callable[..., int]:
        def call(h: int, n: int, places: int, lda: int, pivots: int, results: int, ldc: int, info: int, count: int) -> int:
            def work() -> None:
                rows = vector(pivots, "i4", count * n).reshape(count, n)
                for k, (place, result) in enumerate(zip(vector(places, "u8", count), vector(results, "u8", count), strict=True)):
                    whole = restored(matrix(int(place), dtype, n, n, lda), rows[k])
                    matrix(int(result), dtype, n, n, ldc)[...] = np.linalg.inv(whole)
                    vector(info, "i4", count)[k] = 0

            return self.table.enqueue(h, work)

        return call

    def getrs_batched(self, dtype: str) -> Callable[..., int]:
        def call(h: int, op: int, n: int, columns: int, places: int, lda: int, pivots: int, b: int, ldb: int, info: int, count: int) -> int:
            def work() -> None:
                rows = vector(pivots, "i4", count * n).reshape(count, n)
                for k, (place, target) in enumerate(zip(vector(places, "u8", count), vector(b, "u8", count), strict=True)):
                    whole, right = restored(matrix(int(place), dtype, n, n, lda), rows[k]), matrix(int(target), dtype, n, columns, ldb)
                    right[...] = np.linalg.solve(turned(op, whole), right)

            status = self.table.enqueue(h, work)
            vector(info, "i4", 1)[...] = 0  # of the arguments, on the host
            return status

        return call

    def getrs(self, dtype: str) -> Callable[..., int]:
        def call(h: int, op: int, n: int, columns: int, a: int, lda: int, pivots: int, b: int, ldb: int) -> int:
            def work() -> None:
                factors, target = matrix(a, dtype, n, n, lda), matrix(b, dtype, n, columns, ldb)
                target[...] = np.linalg.solve(turned(op, restored(factors, vector(pivots, "i4", n))), target)

            return self.table.enqueue(h, work)

        return call

    def geqrf(self, dtype: str) -> Callable[..., int]:
        def call(h: int, m: int, n: int, a: int, lda: int, factors: int) -> int:
            def work() -> None:
                given = matrix(a, dtype, m, n, lda)
                made, taus = np.linalg.qr(given, mode="raw")
                given[...] = made.T
                vector(factors, dtype, min(m, n))[...] = taus

            return self.table.enqueue(h, work)

        return call

    def orgqr(self, dtype: str) -> Callable[..., int]:
        def call(h: int, m: int, n: int, k: int, a: int, lda: int, factors: int) -> int:
            def work() -> None:
                given = matrix(a, dtype, m, n, lda)
                given[...] = reflected(given.copy(), vector(factors, dtype, k), np.eye(m, n, dtype=dtype), adjoint=False)

            return self.table.enqueue(h, work)

        return call

    def ormqr(self, dtype: str) -> Callable[..., int]:
        def call(h: int, side: int, op: int, m: int, n: int, k: int, a: int, lda: int, factors: int, c: int, ldc: int) -> int:
            def work() -> None:
                left = side == LEFT
                given = matrix(a, dtype, m if left else n, k, lda)
                target, taus = matrix(c, dtype, m, n, ldc), vector(factors, dtype, k)
                if left:
                    target[...] = reflected(given, taus, target.copy(), adjoint=op != PLAIN)
                else:  # c q = (q^H c^H)^H
                    target[...] = np.conj(reflected(given, taus, np.conj(target.T), adjoint=op == PLAIN).T)

            return self.table.enqueue(h, work)

        return call

    def syev(self, dtype: str, real: str) -> Callable[..., int]:
        def call(h: int, vectors: int, uplo: int, n: int, a: int, lda: int, values: int, rest: int, info: int) -> int:
            def work() -> None:
                given = matrix(a, dtype, n, n, lda)
                found, vectors_found = np.linalg.eigh(given, "U" if uplo == UPPER else "L")
                vector(values, real, n)[...] = found
                if vectors == _WITH_VECTORS:
                    given[...] = vectors_found
                vector(info, "i4", 1)[...] = 0

            return self.table.enqueue(h, work)

        return call

    def gesvd(self, dtype: str, real: str) -> Callable[..., int]:
        def call(
            h: int,
            left: int,
            right: int,
            m: int,
            n: int,
            a: int,
            lda: int,
            s: int,
            u: int,
            ldu: int,
            v: int,
            ldv: int,
            e: int,
            fast: int,
            info: int,
        ) -> int:
            def work() -> None:
                given, k = matrix(a, dtype, m, n, lda), min(m, n)
                us, values, vs = np.linalg.svd(given, full_matrices=_ALL in (left, right))
                vector(s, real, k)[...] = values
                if left in (_ALL, _SMALLER):
                    columns = m if left == _ALL else k
                    matrix(u, dtype, m, columns, ldu)[...] = us[:, :columns]
                if right in (_ALL, _SMALLER):
                    rows = n if right == _ALL else k
                    matrix(v, dtype, rows, n, ldv)[...] = vs[:rows]
                if left == _OVERWRITE:
                    given[:, :k] = us[:, :k]
                elif right == _OVERWRITE:
                    given[:k] = vs[:k]
                vector(info, "i4", 1)[...] = 0

            return self.table.enqueue(h, work)

        return call


def add_solver(table: Table) -> None:
    """Cholesky, LU, QR, eigenvalues of symmetric matrices, singular values."""
    solver, P, N = Solver(table), POINTER, INT
    table.add_handles("rocblas_create_handle", "rocblas_destroy_handle", "rocblas_set_stream", "rocblas_get_stream")
    for letter, dtype in LETTERS.items():
        name, real = f"rocsolver_{letter.lower()}", "f4" if dtype in ("f4", "c8") else "f8"
        table.add(name + "potrf", (P, N, N, P, N, P), solver.potrf(dtype))
        table.add(name + "potrs", (P, N, N, N, P, N, P, N), solver.potrs(dtype))
        table.add(name + "getrf", (P, N, N, P, N, P, P), solver.getrf(dtype))
        blas = f"hipblas{letter}"
        table.add(blas + "getrfBatched", (P, N, P, N, P, P, N), solver.getrf_batched(dtype))
        table.add(blas + "getriBatched", (P, N, P, N, P, P, N, P, N), solver.getri_batched(dtype))
        table.add(blas + "getrsBatched", (P, N, N, N, P, N, P, P, N, P, N), solver.getrs_batched(dtype))
        table.add(name + "getrs", (P, N, N, N, P, N, P, P, N), solver.getrs(dtype))
        table.add(name + "geqrf", (P, N, N, P, N, P), solver.geqrf(dtype))
        for suffix in ("orgqr", "ungqr"):
            table.add(name + suffix, (P, N, N, N, P, N, P), solver.orgqr(dtype))
        for suffix in ("ormqr", "unmqr"):
            table.add(name + suffix, (P, N, N, N, N, N, P, N, P, P, N), solver.ormqr(dtype))
        for suffix in ("syev", "heev"):
            table.add(name + suffix, (P, N, N, N, P, N, P, P, P), solver.syev(dtype, real))
        table.add(name + "gesvd", (P, N, N, N, N, P, N, P, P, N, P, N, P, N, P), solver.gesvd(dtype, real))
