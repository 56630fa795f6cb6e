"""Memory for the stacks of the CPU's threads, and where the lanes of a strip lie in it (lane scratch).

How deep a stack gets is not known before. So a row reserves more addresses than it can need, and the system maps pages as they are touched.
A row that grows by copying needs a call in the loop, around which compilers spill all that the loop computes: with it the reverse of a
tomographic projection took 1.8 times as long.

The lanes of a strip share a row in which the elements that all lanes push or pop at once are contiguous. That needs an index which is
uniform over the lanes, as the top of a stack is that they push to in step (`lane_scratch`); where the depth differs from lane to lane,
threads run one by one. As a strip keeps the stacks of all its threads, kernels with very deep ones are run in narrower strips.
"""

from collections.abc import Callable, Iterator, Sequence, Set

from ...ir.nodes import Binary, Buffer, Expr, Load, Select, Stmt, children
from ...ir.rewrite import walk_stmts
from ..structure import Read, expressions, operands, reads, written

ROWS = r"""
[[noreturn]] GPUAD_NOINLINE static void gpuad_no_room() { throw std::bad_alloc(); }

// How many threads that make so many iterations may keep what is needed of each.
GPUAD_INLINE long long gpuad_narrow(double iterations)
{
    const double most = 4194304.0;
    return iterations < most / 64 ? 64 : iterations < most ? (long long)(most / iterations) : 1;
}

#ifdef _WIN32
template <typename T>
struct gpuad_row {
    T* data = nullptr;
    unsigned long long size = 0;

    gpuad_row() = default;
    gpuad_row(const gpuad_row&) = delete;
    ~gpuad_row() { std::free((void*)data); }

    GPUAD_NOINLINE void grow(unsigned long long k)
    {
        const unsigned long long more = k < 512 ? 1024 : 2 * k;
        void* moved = k < 1ULL << 40 ? std::realloc((void*)data, more * sizeof(T)) : nullptr;
        if (!moved) gpuad_no_room();
        data = (T*)moved;
        size = more;
    }

    inline T& operator[](long long k)
    {
        if (__builtin_expect((unsigned long long)k >= size, 0)) grow((unsigned long long)k);
        return data[k];
    }

    inline T* shelf(long long k, long long lanes)
    {
        return &(*this)[(k + 1) * lanes - 1] + 1 - lanes;
    }
};
#else
// As many addresses as the system lets us have, up to 4 GiB; none of it is memory before it is touched.
static void* gpuad_reserve(unsigned long long& bytes)
{
    for (bytes = sizeof(void*) > 4 ? 1ULL << 32 : 1ULL << 26; bytes >= 1ULL << 16; bytes /= 2) {
        void* found = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (found == MAP_FAILED) continue;
#ifdef MADV_NOHUGEPAGE
        madvise(found, bytes, MADV_NOHUGEPAGE);
#endif
        return found;
    }
    gpuad_no_room();
}

template <typename T>
struct gpuad_row {
    T* data;
    unsigned long long bytes;

    gpuad_row() { data = (T*)gpuad_reserve(bytes); }
    gpuad_row(const gpuad_row&) = delete;
    ~gpuad_row() { munmap((void*)data, bytes); }

    inline T& operator[](long long k)
    {
        if (__builtin_expect((unsigned long long)k >= bytes / sizeof(T), 0)) gpuad_no_room();
        return data[k];
    }

    inline T* shelf(long long k, long long lanes)
    {
        return &(*this)[(k + 1) * lanes - 1] + 1 - lanes;
    }
};
#endif

"""


LaneScratch = tuple[tuple[Buffer, Expr], ...]


def lane_scratch(items: Sequence[Stmt | Expr], rows: Set[Buffer], is_same: Callable[[Expr], bool]) -> LaneScratch | None:
    """For each of these buffers that the work of a lane accesses, the index of its elements; None if they have several, or it is not the
    same for all lanes, or it may be that nothing is there."""
    if not rows:
        return ()
    found: dict[Buffer, Expr] = {}
    for buffer, index in _accesses(items, rows):
        if found.setdefault(buffer, index) != index or not is_same(index):
            return None
    certain = {buffer for item in items for buffer in _surely(item)}
    return tuple(found.items()) if found.keys() <= certain else None


def _accesses(items: Sequence[Stmt | Expr], rows: Set[Buffer]) -> Iterator[tuple[Buffer, Expr]]:
    done = tuple(item for item in items if isinstance(item, Stmt))
    for expr in (*expressions(done), *(item for item in items if isinstance(item, Expr))):
        yield from ((read.buffer, read.index) for read in reads(expr) if read.buffer in rows)
    for stmt in walk_stmts(done):
        buffer = _accessed(stmt)
        if buffer is not None and buffer in rows:
            yield buffer, operands(stmt)[0]


def _accessed(stmt: Stmt) -> Buffer | None:
    """The buffer that the statement itself loads from or writes."""
    return stmt.buffer if isinstance(stmt, Load) else written(stmt)


def _surely(item: Stmt | Expr) -> Iterator[Buffer]:
    """The buffers that are accessed wherever the item is done."""
    match item:
        case Read():
            yield item.buffer
        case Select(condition=condition):
            yield from _surely(condition)
            return
        case Binary(op="&&" | "||", left=left):
            yield from _surely(left)
            return
        case Stmt():
            yield from [buffer] if (buffer := _accessed(item)) is not None else []
    for expr in operands(item) if isinstance(item, Stmt) else children(item):
        yield from _surely(expr)
