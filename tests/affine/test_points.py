"""isl's sets and functions at many points, against isl point by point."""

from __future__ import annotations

import random
from typing import Any

import islpy
import numpy as np
import pytest
from nightly import cases

from gpuad.affine.cells import Cut, cells
from gpuad.affine.points import Function, Region, coordinates, scattered
from gpuad.affine.relations import context, decided


def points_of(whole: Any) -> set[tuple[int, ...]]:
    found: list[Any] = []
    whole.foreach_point(found.append)
    return {tuple(coordinates(point)) for point in found}


def tuples(points: Any) -> set[tuple[int, ...]]:
    return {tuple(point) for point in points.tolist()}


def read(kind: Any, text: str) -> Any:
    return kind.read_from_str(context(), text)


@pytest.mark.parametrize("seed", range(cases(15, 40)))
def test_sets_and_functions(seed: int) -> None:
    rng = random.Random(seed)
    a, b, c = (rng.randint(-4, 4) for _ in range(3))
    d = rng.randint(2, 5)

    def compare() -> None:
        whole = read(
            islpy.Set,
            f"{{ [x, y] : 0 <= x < 20 and 0 <= y < 25 and ({a}x + {b}y + {c} >= 0 or x mod {d} = 1) and floor(({a}*y + x)/{d}) < 5 "
            f"and exists (e : {d}e = x + {b}y) }}",
        )
        every = np.array([(x, y) for x in range(-2, 22) for y in range(-2, 27)])
        assert tuples(every[Region(whole).holds(every)]) == points_of(whole)
        some, complete = scattered(whole, 10)
        assert complete and tuples(some) == points_of(whole)
        related = read(
            islpy.Map, f"{{ [x, y] -> [u, v] : 0 <= x < 20 and 0 <= y < 25 and 2u = x + {b}y and v = max(x, y) - ({a}x + y) mod {d} }}"
        )
        there, images = Function(related).images(every)
        assert {(*p, *q) for p, q in zip(every[there].tolist(), images.tolist(), strict=True)} == points_of(related.wrap())

    decided(compare)


def test_points_of_a_large_set_are_in_general_position() -> None:
    """No affine function vanishes on all of them, though the set is thin and has a stride."""
    whole = read(islpy.Set, "{ [x, y, z] : 0 <= x < 2000 and y = x + 3 and 0 <= z < 50 and z mod 7 = x mod 7 }")
    points, complete = scattered(whole, 8)
    assert not complete and Region(whole).holds(points).all() and len(points) >= 8
    assert np.linalg.matrix_rank(np.column_stack([points[:, [0, 2]], np.ones(len(points))])) == 3


def test_no_cell_is_left_out() -> None:
    """However small it is."""
    whole = read(islpy.Set, "{ [x, y] : 0 <= x < 5000 and 0 <= y < 5000 }")
    cuts = [
        Cut(lambda text=text: read(islpy.Set, f"{{ [x, y] : {text} }}"))
        for text in ("x = 3 and y = 4711", "x > 2500", "x >= 2501", "y < 9000")
    ]
    found = cells(whole, cuts, 4)
    assert len(found) == 3 and [[3, 4711]] in [cell.tolist() for cell in found]
