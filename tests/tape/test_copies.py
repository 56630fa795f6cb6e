"""Copies of pairs by `copy` and `pickle`: inside of a tape a deep copy is an operation like any other, or refused (RULES 28)."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from launch_tools import running

import gpuad
from gpuad import Active, BatchDuplicated, Duplicated, Tape, TapeError, ops


@pytest.fixture(autouse=True, params=["reference", "host"])
def executor(request: Any) -> Iterator[None]:
    with running(request.param):
        yield


COPIES = {"deepcopy": copy.deepcopy, "copy": copy.copy, "in a list": lambda x: copy.deepcopy([x])[0]}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("what", ["a pair", "a view", "a temporary", "a view of a temporary"])
def test_a_copy_inside_of_a_tape_carries_the_gradient(how: str, what: str) -> None:
    x, tape = Duplicated(np.array([1.0, 2.0, 3.0]), np.zeros(3)), Tape()
    for k in (1, 2, 3):
        with tape:
            y = x * 2.0 if "temporary" in what else x
            y = y[:] if "view" in what else y
            z = COPIES[how](y)
            loss = ops.sum(z * z)
        tape.reverse({loss: 1.0})
        scale = 8 if "temporary" in what else 2
        np.testing.assert_array_equal(x.shadow, k * scale * x.primal)


def test_a_deep_copy_is_apart() -> None:
    x, tape = Duplicated(np.array([1.0, 2.0])), Tape()
    with tape:
        z = copy.deepcopy(x)
        z *= 3.0
        loss = ops.sum(z)
    tape.reverse({loss: 1.0})
    assert x.primal.tolist() == [1, 2] and z.primal.tolist() == [3, 6] and x.shadow.tolist() == [3, 3]


def test_a_deep_copy_of_a_batch() -> None:
    x, tape = BatchDuplicated(np.array([1.0, 2.0]), (np.zeros(2), np.zeros(2))), Tape()
    with tape:
        z = copy.deepcopy(x)
        z = ops.multiply(z, 3.0)
    tape.reverse({z: (1.0, 2.0)})
    assert [s.tolist() for s in x.shadows] == [[3, 3], [6, 6]]


def test_a_deep_copy_of_a_number_has_its_shadow() -> None:
    x, da, tape = Duplicated(np.array([1.0, 2.0])), np.zeros(()), Tape()
    with tape:
        rates = copy.deepcopy({"a": Active(3.0, da)})
        y = x * rates["a"]
    tape.reverse({y: 1.0})
    assert da == 3


@pytest.mark.parametrize("make", [lambda x: x, lambda x: x * 2.0, lambda x: Active(1.0, np.zeros(()))])
def test_pickling_inside_of_a_tape_is_refused(make: Any) -> None:
    x = Duplicated(np.ones(2))
    with Tape(), pytest.raises(TapeError, match=r"pickled inside of a tape.*write `y = x.copy\(\)`"):
        pickle.dumps(make(x))


def test_pickling_outside() -> None:
    """A pair whose shadow nobody has asked for, too."""
    x, given = Duplicated(np.arange(3.0)), Duplicated(np.ones(2), np.full(2, 7.0), keep=True)
    batch = BatchDuplicated(np.ones(1), (np.zeros(1), np.ones(1)))
    again, other, several = pickle.loads(pickle.dumps((x, given, batch)))
    assert again.primal.tolist() == [0, 1, 2] and again.shadow.tolist() == [0, 0, 0]
    assert other.shadow.tolist() == [7, 7] and other.keep and several.shadows[1].tolist() == [1]
    assert pickle.loads(pickle.dumps(Active(2.0, np.ones(())))).shadow == 1
    with Tape():
        y = x * 2.0
    assert type(pickle.loads(pickle.dumps(y))) is Duplicated


def test_deep_copies_outside() -> None:
    x = Duplicated(np.ones(3), np.full(3, 2.0))
    deep = copy.deepcopy([x, x])
    assert deep[0] is deep[1] and deep[0].shadow.tolist() == [2, 2, 2] and not np.shares_memory(deep[0].primal, x.primal)
    noneed = copy.deepcopy(gpuad.DuplicatedNoNeed(np.ones(1), np.ones(1)))
    assert type(noneed) is gpuad.DuplicatedNoNeed
