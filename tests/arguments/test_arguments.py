"""What a launch accepts, what it refuses and in which words, and how overlapping arguments are found. Each refusal has a test."""

from __future__ import annotations

import operator
import re
from typing import Any

import numpy as np
import pytest

from gpuad.arguments import Bound, activities, aliasing, bind, geometry
from gpuad.arguments.annotations import Active, BatchDuplicated, Const, Duplicated, DuplicatedNoNeed, stop_gradient
from gpuad.errors import GpuadError, LaunchError, ShadowError, TapeError, UnsupportedError
from gpuad.ir.surface import Declaration
from gpuad.ir.types import BOOL, F16, F32, F64, I32, I64, U8, U32, Complex, Pointer, Type, Vector
from gpuad.runtime.base import resolve
from gpuad.source import SourceFile, Span

SPAN = Span(SourceFile("step.cu", "__global__ void step(...)"), 1, 17)


def declare(**types: Type) -> tuple[Declaration, ...]:
    return tuple(Declaration(SPAN, name, type_, uid) for uid, (name, type_) in enumerate(types.items()))


def call(types: dict[str, Type], *args: Any, **options: Any) -> Bound:
    return bind("step", declare(**types), args, **options)


def refused(error: type[GpuadError], words: str, types: dict[str, Type], *args: Any, **options: Any) -> None:
    with pytest.raises(error, match=re.escape(words)):
        call(types, *args, **options)


def floats(*shape: int) -> Any:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


X = {"x": Pointer(F32)}
XY = {"x": Pointer(F32), "y": Pointer(F32)}
READ = {"x": Pointer(F32, const=True), "y": Pointer(F32, const=True)}


# --- annotations ---------------------------------------------------------------------------------------------------------------------


def test_the_zero_shadow_is_lazy_and_shared_by_views() -> None:
    u = Duplicated(floats(4, 6))
    part = u[1:3, ::2]
    part.shadow.fill(7)
    assert u.shadow.sum() == 7 * 6 and np.shares_memory(part.shadow, u.shadow)
    assert u[2].shadow.shape == (6,) and u.T.shape == (6, 4) and u.reshape(24)[3].shadow.shape == ()


def test_the_zero_shadow_of_a_view_has_the_same_room_around_it() -> None:
    inner = floats(8, 8)[2:-2, 2:-2]
    shadow = Duplicated(inner).shadow
    assert shadow.strides == inner.strides and not shadow.any()
    assert call(X, Duplicated(inner)).arguments[0].shadow.offset == 18


def test_integers_index_to_views_and_never_to_numbers() -> None:
    x, dx = floats(5), np.zeros(5, np.float32)
    item = Duplicated(x, dx)[np.int64(3)]
    item.shadow[...] = 2
    assert item.primal.shape == () and dx[3] == 2


@pytest.mark.parametrize("key", [[1, 2], np.array([1]), np.ones(5, bool), True])
def test_index_arrays_and_masks_are_refused_outside_of_a_tape(key: Any) -> None:
    with pytest.raises(TapeError, match="outside of a tape"):
        Duplicated(floats(5))[key]
    with pytest.raises(UnsupportedError, match="basic slicing"):
        BatchDuplicated(floats(5), (floats(5),))[key]


def test_a_reshape_that_copies_is_refused() -> None:
    with pytest.raises(ShadowError, match="would copy"):
        Duplicated(floats(4, 4))[:, :2].reshape(8)


@pytest.mark.parametrize(
    "use",
    [np.asarray, float, complex, operator.index, np.hypot.reduce, np.from_dlpack],
)
def test_a_pair_is_no_array(use: Any) -> None:
    with pytest.raises(TypeError, match=r"`\.primal`|not recorded"):
        use(Duplicated(floats(3)))


@pytest.mark.parametrize("use", [np.exp, np.sum, np.linalg.norm, lambda d: np.ones(3) * d, lambda d: d.__setitem__(0, 1), lambda d: d + 1])
def test_operations_on_a_pair_are_refused_outside_of_a_tape(use: Any) -> None:
    with pytest.raises(TapeError, match=r"outside of a tape"):
        use(Duplicated(floats(3)))


@pytest.mark.parametrize(("name", "words"), [("grad", r"\.shadow"), ("backward", r"gpuad\.autodiff"), ("detach", r"\.primal")])
def test_names_of_other_tools_name_ours(name: str, words: str) -> None:
    with pytest.raises(AttributeError, match=words):
        getattr(Duplicated(floats(3)), name)
    assert not hasattr(Duplicated(floats(3)), "__array_interface__")


def test_attributes() -> None:
    x = Duplicated(floats(3, 4))
    assert (x.shape, x.dtype, x.size, x.ndim, x.nbytes) == ((3, 4), np.float32, 12, 2, 48)


def test_many_actives_share_one_shadow_vector() -> None:
    shadows = np.zeros(3, np.float32)
    values = Active.many(np.array([0.5, 1.0, 2.0]), shadows)
    bound = call({"a": F32, "b": F32, "c": F32}, *values)
    bound.arguments[1].shadow_array[...] = 4
    assert shadows.tolist() == [0, 4, 0] and bound.arguments[2].value == np.float32(2)
    with pytest.raises(ShadowError, match=r"Active\.many"):
        Active.many([1, 2], shadows)


# --- what is accepted ----------------------------------------------------------------------------------------------------------------


def test_an_ordinary_call() -> None:
    x, dx, y = floats(10), np.zeros(10, np.float32), floats(10)
    bound = call({"x": Pointer(F32), "y": Pointer(F32, const=True), "n": I32, "a": F64}, Duplicated(x, dx), y, 10, 0.25)
    first, second, n, a = bound.arguments
    assert (first.kind, second.kind, n.kind) == ("duplicated", "bare", "bare")
    assert first.memory.root.base is not None and first.shadow.root.size == 10
    assert n.value.dtype == np.int32 and a.value.dtype == np.float64 and bound.library == "numpy"
    assert len(bound.primals()) == 4 and bound.by_name["n"] is n and bound.aliases[2] is None


@pytest.mark.parametrize(
    ("type_", "value", "want"),
    [
        (F32, 0.1, np.float32(0.1)), (F32, 3, np.float32(3)), (F32, True, np.float32(1)), (F64, np.float32(0.5), np.float64(0.5)),
        (F32, float("nan"), np.float32("nan")), (F32, np.float32(0.1), np.float32(0.1)), (I32, 7, np.int32(7)),
        (I32, np.int64(-7), np.int32(-7)),
        (I32, 3.0, np.int32(3)), (U32, 2**32 - 1, np.uint32(2**32 - 1)), (I64, 2**40, np.int64(2**40)), (BOOL, True, np.bool_(True)),
        (F32, 1e-60, np.float32(0)),
        (F16, 0.1, np.float32(np.float16(0.1))), (I32, np.bool_(True), np.int32(1)),
    ],
)  # fmt: skip
def test_numbers_are_converted_when_nothing_is_lost(type_: Type, value: Any, want: Any) -> None:
    got = call({"a": type_}, value).arguments[0].value
    assert got.dtype == want.dtype and np.array_equal(got, want, equal_nan=got.dtype.kind == "f")


@pytest.mark.parametrize(
    ("type_", "value", "words"),
    [
        (F32, np.float64(0.5), "pass numpy.float32(0.5)"), (F32, 16777217, "cannot hold"), (F32, 1e300, "cannot hold"),
        (I32, 2**31, "beyond the range"), (U32, -1, "beyond the range"), (I32, 2.5, "no whole number"),
        (I32, float("nan"), "no whole number"),
        (BOOL, 2, "beyond the range"), (F32, np.zeros((), np.float32), "passed by value: float(x)"), (I32, "7", "pass a number"),
        (F32, 1j, "pass a number"), (F32, None, "pass a number"), (F32, object(), "pass a number"), (F32, 10**400, "cannot hold"),
    ],
)  # fmt: skip
def test_numbers_that_do_not_fit(type_: Type, value: Any, words: str) -> None:
    refused(LaunchError, words, {"a": type_}, value)


def test_errors_name_the_parameter_and_its_place() -> None:
    refused(
        LaunchError, "parameter 2 `float dt` of `step` (step.cu:1:17) got numpy.float64(0.001)", {"n": I32, "dt": F32}, 3, np.float64(0.001)
    )


def test_missing_arguments_are_named() -> None:
    refused(LaunchError, "takes 3 arguments, got 1: missing `float* y`, `int n`", {**XY, "n": I32}, floats(3))
    refused(LaunchError, "1 too many", X, floats(3), 3)
    with pytest.raises(LaunchError, match="tuple or list"):
        bind("step", declare(**X), floats(3))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arg", "words"),
    [
        (140231, "pass the array itself"), (np.int64(3), "pass the array itself"), ([1.0], "got a list"), (1.5, "got the number"),
        (np.zeros(3), "pass x.astype('float32')"), (np.zeros(3, np.int32), "not float"), (np.zeros(3, ">f4"), "not float"),
        (Duplicated, "got the class Duplicated"), ("x", "pass a NumPy or CuPy array"), (floats(8)[::2], "pass a contiguous copy"),
        (floats(8)[::-1], "negative stride"), (floats(4, 4)[:, ::2], "contiguous copy"), (np.broadcast_to(floats(4), (3, 4)), "broadcast"),
    ],
)  # fmt: skip
def test_what_a_pointer_refuses(arg: Any, words: str) -> None:
    with pytest.raises(LaunchError, match=f"(?i){re.escape(words)}"):
        call(X, arg)


def test_layouts_that_a_kernel_can_use() -> None:
    wide = floats(6, 8)
    for view in (
        np.asfortranarray(wide),
        wide.T,
        wide[:, :5],
        wide[1:-1, 1:-1],
        wide[2:3, ::4][:, :1],
        wide[..., None],
        np.zeros((0, 3), np.float32),
    ):
        assert call(X, view).arguments[0].memory is not None
    assert call(X, None).arguments[0].memory is None


WINDOWS = np.lib.stride_tricks.sliding_window_view


@pytest.mark.parametrize(
    ("view", "words"),
    [
        (np.broadcast_to(floats(4), (3, 4)), "got a broadcast array (a stride of 0)"),
        (np.broadcast_to(np.float32(1), 4), "got a broadcast array (a stride of 0)"),
        (WINDOWS(floats(6), 3), "got a view whose elements overlap (strides (4, 4) bytes)"),
        (WINDOWS(floats(6), 3)[:, ::2], "got a view whose elements overlap (strides (4, 8) bytes)"),
    ],
)
def test_elements_that_share_memory_are_fewer_than_a_raw_kernel_reads(view: Any, words: str) -> None:
    """RULES 27: it would read past their end, also where it only reads."""
    words += "; a raw kernel ignores strides and would read past the end of it. Pass a contiguous copy"
    refused(LaunchError, words, {"x": Pointer(F32, const=True)}, view)
    parameters = declare(x=Pointer(F32, const=True))
    assert bind("step", parameters, (view,), strided=True)  # who is told the strides may read it
    with pytest.raises(LaunchError, match="its elements share memory; pass a contiguous copy"):
        bind("step", parameters, (Duplicated(view, np.zeros(view.shape, np.float32)),), strided=True)


def test_a_window_lies_in_the_memory_that_it_is_a_view_of() -> None:
    x = floats(6)
    memory = resolve(WINDOWS(x, 3)[2:])
    assert (memory.root.size, memory.offset) == (6, 2)
    assert np.shares_memory(memory.root, x)


def test_kinds_of_numbers_behind_pointers() -> None:
    assert call({"x": Pointer(U32)}, np.zeros(3, np.int32))
    assert call({"x": Pointer(U8)}, np.zeros(3, np.bool_))
    pairs = call({"x": Pointer(Vector(F32, 2))}, np.zeros(4, np.complex64)[1:]).arguments[0].memory
    assert pairs.root.dtype == np.float32 and (pairs.root.size, pairs.offset) == (8, 2)
    assert call({"x": Pointer(Vector(F32, 2))}, np.zeros((3, 2), np.float32))
    assert call({"x": Pointer(Complex(F64))}, np.zeros(3, np.complex128))
    refused(LaunchError, "side by side", {"x": Pointer(Vector(F32, 2))}, floats(3, 1))


def test_foreign_host_arrays_share_their_memory() -> None:
    class Foreign:
        def __init__(self, array: Any) -> None:
            self.array = array

        def __dlpack__(self, **options: Any) -> Any:
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

    x, dx = floats(4), floats(4)
    call(X, Foreign(x)).arguments[0].array[0] = 9
    Duplicated(Foreign(x), Foreign(dx)).shadow[1] = 8
    assert (x[0], dx[1]) == (9, 8)


def test_only_arrays_are_duplicated() -> None:
    for x in (1.5, np.float32(1), [1.0], None):
        with pytest.raises(ShadowError, match=r"takes an array.*Active"):
            Duplicated(x)
    with pytest.raises(ShadowError, match=r"annotated once"):
        Duplicated(Duplicated(floats(3)))


def test_read_only_arrays_may_be_read() -> None:
    x = floats(4)
    x.flags.writeable = False
    assert call({"x": Pointer(F32, const=True)}, x)
    assert call(X, x, written=())
    refused(LaunchError, "read-only", X, x)
    refused(ShadowError, "read-only array as shadow", X, Duplicated(floats(4), x))


# --- shadows -------------------------------------------------------------------------------------------------------------------------


def test_shadows_that_do_not_fit() -> None:
    x = floats(4, 4)
    refused(ShadowError, "its shadow (4,)", X, Duplicated(x, floats(4)))
    refused(ShadowError, "its shadow float64", X, Duplicated(x, np.zeros((4, 4))))
    refused(ShadowError, "different strides", X, Duplicated(x, np.zeros((4, 4), np.float32, order="F")))
    refused(ShadowError, "as its shadow itself", X, Duplicated(x, x))
    both = np.zeros(32, np.float32)
    refused(ShadowError, "as its shadow memory of `y`", XY, Duplicated(x, both[:16].reshape(4, 4)), both[8:])
    with pytest.raises(ShadowError, match=r"`dx` takes an array, got float 1\.0"):
        Duplicated(x, 1.0)
    refused(ShadowError, "no gradient", {"x": Pointer(I32)}, Duplicated(np.zeros(3, np.int32)))
    with pytest.raises(ShadowError, match="an array takes Duplicated"):
        Active(x, x)
    refused(ShadowError, "use Active(value, shadow)", {"a": F32}, Duplicated(x))


def test_a_shadow_of_half_is_float() -> None:
    half = {"x": Pointer(F16)}
    assert call(half, Duplicated(np.zeros(9, np.float16), np.zeros(9, np.float32)))
    assert call(half, Duplicated(np.zeros(9, np.float16))).arguments[0].shadow_array.dtype == np.float32
    refused(ShadowError, "float32, not float16", half, Duplicated(np.zeros(9, np.float16), np.zeros(9, np.float16)))
    base, room = np.zeros(9, np.float16), np.zeros(9, np.float32)
    assert call(half, Duplicated(base[2:], room[2:])).arguments[0].shadow.offset == 2


def test_a_view_needs_a_shadow_with_the_same_room() -> None:
    u, du = floats(10), np.zeros(10, np.float32)
    assert call(X, Duplicated(u[1:-1], du[1:-1]))
    refused(ShadowError, "slice the pair", X, Duplicated(u[1:-1], np.zeros(8, np.float32)))
    refused(ShadowError, "slice the pair", X, Duplicated(u[1:-1], du[2:]))
    assert call(X, Duplicated(u[1:-1], np.zeros(8, np.float32)), inside=("x",))
    assert call(X, Duplicated(floats(4), np.zeros((2, 4), np.float32)[1]))  # a whole array cannot be left


def test_actives() -> None:
    number = {"a": F32}
    for shadow in (np.zeros(()), np.zeros((), np.float32), np.zeros(1, np.float32), np.zeros(4, np.float32)[2:3], np.zeros(4)[1, ...]):
        assert call(number, Active(0.5, shadow)).arguments[0].shadow is not None
    with pytest.raises(ShadowError, match=r"`dtheta\[i\]` is a copy, `dtheta\[i, \.\.\.\]` a view"):
        Active(0.5, np.zeros(4)[1])
    refused(ShadowError, "shape () or (1,)", number, Active(0.5, np.zeros(4)))
    refused(ShadowError, "shape () or (1,)", number, Active(0.5, np.zeros((1, 1))))
    with pytest.raises(ShadowError, match=r"zeros\(\(\)\)"):
        Active(0.5, 0.0)  # type: ignore[arg-type]
    refused(ShadowError, "float64 or wider", {"a": F64}, Active(0.5, np.zeros((), np.float32)))
    refused(ShadowError, "no gradient", {"n": I32}, Active(3, np.zeros(())))
    refused(LaunchError, "numpy.float32", number, Active(np.float64(0.5), np.zeros(())))
    shared = np.zeros(())
    refused(ShadowError, "shares its shadow", {"a": F32, "b": F32}, Active(0.5, shared), Active(0.75, shared))


def test_batches() -> None:
    x, shadows = floats(4), (np.zeros(4, np.float32), np.ones(4, np.float32))
    bound = call({**X, "a": F32}, BatchDuplicated(x, shadows), Active(0.5, np.zeros(2)))
    assert bound.width == 2 and [len(a.shadows) for a in bound.arguments] == [2, 2] and bound.arguments[1].shadow_arrays[1].shape == (1,)
    refused(ShadowError, "`x` has 2", XY, BatchDuplicated(x, shadows), Duplicated(floats(4)))
    refused(ShadowError, "overlap each other", X, BatchDuplicated(x, (shadows[0], shadows[0])))
    with pytest.raises(ShadowError, match="one shadow or more"):
        BatchDuplicated(x, ())


def test_kinds() -> None:
    x = floats(4)
    kinds = [call(X, a).arguments[0].kind for a in (DuplicatedNoNeed(x), Const(x), stop_gradient(Duplicated(x)), Duplicated(x, keep=True))]
    assert kinds == ["noneed", "const", "stopped", "duplicated"]
    assert call(X, Duplicated(x, keep=True)).arguments[0].keep


# --- aliasing ------------------------------------------------------------------------------------------------------------------------


def test_one_array_twice_with_its_one_shadow() -> None:
    x = Duplicated(floats(4))
    alias = call(XY, x, x).aliases[1]
    assert (alias.overlap, alias.allocation, alias.offset, alias.equal) == (0, 0, 0, True)


def test_one_primal_two_shadows_and_one_shadow_two_primals() -> None:
    x, y, dx = floats(4), floats(4), np.zeros(4, np.float32)
    refused(ShadowError, "overlap, but their shadows do not", XY, Duplicated(x, dx), Duplicated(x))
    refused(ShadowError, "shares its shadow with `x`", XY, Duplicated(x, dx), Duplicated(y, dx))


def test_shifted_views() -> None:
    u = Duplicated(floats(10))
    alias = call(READ, u[:-1], u[1:]).aliases[1]
    assert (alias.overlap, alias.offset, alias.equal) == (0, 1, False)
    assert call(READ, u[:-1], u[1:]).overlaps() == {1: (0, False)} and call(READ, u, u).overlaps() == {1: (0, True)}


def test_overlap_by_a_part_of_an_element_is_refused() -> None:
    types = {"x": Pointer(F64, const=True), "y": Pointer(F32, const=True)}
    raw = np.zeros(10, np.float64)
    with pytest.raises(LaunchError, match="overlap by a part of an element"):
        call(types, raw, raw[2:4].view(np.float32)).overlaps()


def test_shadows_shifted_otherwise() -> None:
    base, shadow = floats(10), np.zeros(12, np.float32)
    refused(
        ShadowError, "do not lie in the same way", READ, Duplicated(base[:-1], shadow[:9]), Duplicated(base[1:], shadow[2:11]), inside="xy"
    )


def test_disjoint_views_of_one_array() -> None:
    both, shadows = floats(2, 5), np.zeros((2, 5), np.float32)
    alias = call(XY, both[0], both[1]).aliases[1]
    assert (alias.allocation, alias.overlap, alias.allocation_offset) == (0, 1, 5)
    assert call(XY, Duplicated(both[0], shadows[0]), Duplicated(both[1], shadows[1]))
    refused(ShadowError, "shares its shadow", XY, Duplicated(both[0], shadows[0]), Duplicated(both[1], shadows[0]), inside="xy")
    other = np.zeros((2, 5), np.float32)
    refused(ShadowError, "are views of one array", XY, Duplicated(both[0], shadows[0]), Duplicated(both[1], other[1]))
    assert call(XY, Duplicated(both[0], shadows[0]), Duplicated(both[1], other[1]), inside=("x", "y"))


def test_overlap_is_exact() -> None:
    def overlap(a: Any, b: Any) -> bool:
        return aliasing.overlap(aliasing.region(a), aliasing.region(b))

    z = np.zeros(20, np.float32)
    assert not overlap(z[0::2], z[1::2]) and overlap(z[0::2], z[::3]) and not overlap(z[:0], z)
    assert not overlap(np.zeros(0), np.zeros(0))
    pair = np.zeros(6, np.complex64)
    assert not overlap(pair.real, pair.imag) and overlap(pair.real, pair)


def test_memory_with_a_shadow_beside_the_bare_array() -> None:
    x = floats(4)
    refused(ShadowError, "is memory of `x`, which has a shadow", READ, Duplicated(x), x)
    refused(ShadowError, "pass Duplicated with that shadow here too", XY, Duplicated(x), stop_gradient(x))
    assert call(READ, Duplicated(x), stop_gradient(x))
    assert call(READ, x, x)


def test_arrays_without_elements_overlap_nothing() -> None:
    x = np.zeros(0, np.float32)
    assert call(XY, Duplicated(x), Duplicated(x)).aliases == (None, None)


# --- before a launch -----------------------------------------------------------------------------------------------------------------


def test_activities_by_position_and_name() -> None:
    parameters = declare(x=Pointer(F32), a=F32, n=I32)
    assert activities("step", parameters, (Duplicated,), {"a": Active}) == ("duplicated", "active", "const")
    assert activities("step", parameters, (), {"x": DuplicatedNoNeed(floats(3))}) == ("noneed", "const", "const")
    for error, words, positional, named in (
        (LaunchError, "no parameter `z`", (), {"z": Const}),
        (LaunchError, "twice", (Duplicated,), {"x": Duplicated}),
        (LaunchError, "got 4 annotations", (Const,) * 4, {}),
        (LaunchError, "use Duplicated, Active or Const", (3,), {}),
        (ShadowError, "no gradient", (), {"n": Active}),
        (ShadowError, "takes Active", (), {"a": Duplicated}),
        (ShadowError, "takes Duplicated", (Active,), {}),
    ):
        with pytest.raises(error, match=words):
            activities("step", parameters, positional, named)


def test_geometry() -> None:
    assert geometry(4, [32, 8]) == ((4, 1, 1), (32, 8, 1))
    assert geometry((np.int32(4), 2, 1), (1024,)) == ((4, 2, 1), (1024, 1, 1))
    assert geometry((128,), (1024,)) and geometry((1024,), (128,))  # swapped or not, it launches


@pytest.mark.parametrize(
    ("grid", "block", "words"),
    [
        ((4,), (2048,), "Are grid and block swapped"), ((2**20,), (2**20,), "the limit is 1024"), ((1,), (1, 1, 128), "along the axes"),
        ((1, 70000), (1,), "beyond the limit"), (1.5, 32, "whole numbers"), ((1, 1, 1, 1), 32, "one to three"),
        ((), 32, "one to three"),
    ],
)  # fmt: skip
def test_geometry_that_no_device_can_launch(grid: Any, block: Any, words: str) -> None:
    with pytest.raises(LaunchError, match=words):
        geometry(grid, block)
    if "swapped" not in words:
        with pytest.raises(LaunchError) as caught:
            geometry(grid, block)
        assert "swapped" not in str(caught.value)
