"""Random CUDA kernels over the whole language: the grammar of `random_cuda` (tiers base to 1b) with the tiers 1c to 3 mixed into it.

Each kernel draws its features: templates behind name expressions, vectors, complex numbers, structs with methods and operators, switch,
`__constant__` tables, tables in half precision and bfloat16, shared memory with barriers, shuffles and votes, tiles of cooperative groups,
bits of inactive data, additions and maxima by loops around atomicCAS, curand's numbers.
What such a thing holds is a name or an array of the grammar's scope, `v.x`, `s.w[k]`, `part[i].a`, so that every construct of the other
tiers meets it: loops, branches, helpers by reference, swaps, early returns. Besides the parameters of `random_cuda`:

| parameter | each thread i |
|---|---|
| `real2* pv`, `complex<real>* zc`, `Part* part` | owns element i, reads and overwrites it |
| `const __half* hf`, `const __nv_bfloat16* bf` | reads element i, inactive |
| `real* mx` | atomic maxima, never reads |
| `int* top` | atomics on integers, never reads |
| `__constant__ real coef[4]` | reads any element |

In a kernel with barriers all threads of a block come to each of them: what a thread does with its own elements stands in `if (i < n)`,
between the stages that the block does together.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

from random_cuda import Array, Grammar, Kernel, Maker, Name, Node, Scope, block, indented

BLOCK = 4  # threads of a block that works together: the lanes that shuffle
COEF = 4  # elements of the table `coef`
FEATURES = ("template", "vector", "complex", "struct", "switch", "constant", "half", "block", "warp", "bits", "cas", "generic",
            "groups", "greatest", "drawn", "bfloat16")  # fmt: skip

STRUCTS = """
struct Local ⟨
    REAL a;
    REAL w[2];
    int k;
    __device__ Local(REAL s, REAL t) : a(s), w⟨t, s * t⟩, k(1) ⟨ ⟩
    __device__ REAL mixed(REAL u) const ⟨ return k > 1 ? a * u : w[k & 1] + u; ⟩
    __device__ void push(REAL u) ⟨ w[1] = w[0]; w[0] = (REAL)0.5 * u; k = (k + 1) & 3; ⟩
    __device__ Local& operator*=(REAL s) ⟨ a *= s; w[1] = (REAL)0.5 * (w[1] + s); return *this; ⟩
⟩;
__device__ Local operator+(const Local& s, const Local& t) ⟨
    Local r = s;
    r.a = sin(s.a + t.w[0]);
    r.w[1] = (REAL)0.5 * t.a;
    r.k = (s.k + t.k) & 3;
    return r;
⟩
struct Part ⟨ REAL a; REAL w[3]; ⟩;
"""
VECTORS = """
__device__ REAL2 operator+(REAL2 s, REAL2 t) ⟨ return make_REAL2(s.x + t.x, s.y + t.y); ⟩
__device__ REAL2 operator*(REAL s, const REAL2& t) ⟨ return ⟨s * t.x, s * t.y⟩; ⟩
__device__ REAL2& operator+=(REAL2& s, REAL2 t) ⟨ s.x += (REAL)0.3 * t.x; s.y = sin(s.y + t.y); return s; ⟩
__device__ REAL dot(REAL2 s, REAL2 t) ⟨ return s.x * t.x + s.y * t.y; ⟩
"""
CAS_DOUBLE = """
__device__ double cas_add(double* p, double v) ⟨
    unsigned long long* at = (unsigned long long*)p;
    unsigned long long old = *at, assumed;
    do ⟨
        assumed = old;
        old = atomicCAS(at, assumed, __double_as_longlong(v + __longlong_as_double(assumed)));
    ⟩ while (assumed != old);
    return __longlong_as_double(old);
⟩
"""
CAS_FLOAT = """
__device__ void cas_add(float* p, float v) ⟨
    int* at = (int*)p;
    int old = *at, assumed;
    do ⟨
        assumed = old;
        old = atomicCAS(at, assumed, __float_as_int(v + __int_as_float(assumed)));
    ⟩ while (assumed != old);
⟩
"""
GREATEST_DOUBLE = """
__device__ void atomic_max(double* p, double v) ⟨
    unsigned long long* at = (unsigned long long*)p;
    unsigned long long old = *at, assumed;
    do ⟨
        assumed = old;
        old = atomicCAS(at, assumed, __double_as_longlong(fmax(v, __longlong_as_double(assumed))));
    ⟩ while (assumed != old);
⟩
"""
GREATEST_FLOAT = """
__device__ void atomic_max(float* p, float v) ⟨
    if (v >= 0) atomicMax((int*)p, __float_as_int(v));
    else atomicMin((unsigned int*)p, __float_as_uint(v));
⟩
"""
GROUPS = "namespace cg = cooperative_groups;\n"
HEADERS = {
    "complex": ("cupy/complex.cuh",),
    "half": ("cuda_fp16.h",),
    "bfloat16": ("cuda_bf16.h",),
    "drawn": ("curand_kernel.h",),
    "groups": ("cooperative_groups.h", "cooperative_groups/reduce.h"),
}


@dataclass(frozen=True)
class Whole(Kernel):
    """A kernel of the whole language. `features`: those that it may use; a template is launched by the name expression `name`."""

    features: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        text = indented(str(self.program))
        if "template" not in self.features:
            return text
        head, marker, kernel = text.partition('extern "C" __global__')
        return head + "template <typename T, int P>\n__global__" + re.sub(rf"\b{self.real}\b", "T", kernel) if marker else text


class Language(Grammar):
    """Grows one kernel of the whole language from a seed."""

    def __init__(self, seed: int, size: int = 30) -> None:
        super().__init__(seed, size)
        self.features = frozenset(f for f in FEATURES if self.chance(0.4))
        self.together = bool(self.features & {"block", "warp", "groups"})
        self.states = False  # a generator of random numbers is in scope

    def has(self, feature: str) -> bool:
        return feature in self.features

    # --- what a scope holds besides --------------------------------------------------------------------------------------------------

    def add_vector(self, text: str) -> None:
        self.scope.names += [Name(text, "vector"), Name(f"{text}.x", "real"), Name(f"{text}.y", "real")]

    def add_struct(self, text: str) -> None:
        self.scope.names += [Name(text, "struct"), Name(f"{text}.a", "real"), Name(f"{text}.k", "int", most=4)]
        self.scope.arrays.append(Array(lambda k: Node("real", f"{text}.w[{{}}]", (k,)), 2, "2", pointer=f"{text}.w"))

    def add_complex(self, text: str) -> None:
        self.scope.names += [Name(text, "complex"), Name(f"{text}.real()", "real", False), Name(f"{text}.imag()", "real", False)]

    def owned(self) -> None:
        """The thread's elements of the further parameters."""
        if self.has("vector"):
            self.add_vector("pv[i]")
            self.scope.names.append(Name(f"reinterpret_cast<{self.real}2*>(y)[i * 2 + 1]", "vector"))
        if self.has("complex"):
            self.add_complex("zc[i]")
        if self.has("struct"):
            self.scope.names.append(Name("part[i].a", "real"))
            self.scope.arrays.append(Array(lambda k: Node("real", "part[i].w[{}]", (k,)), 3, "3", pointer="part[i].w"))
        if self.has("constant"):
            self.scope.arrays.append(Array(lambda k: Node("real", "coef[{}]", (k,)), COEF, str(COEF), writable=False))
        if self.has("template"):
            self.scope.names.append(Name("P", "int", False, 4))

    # --- expressions -----------------------------------------------------------------------------------------------------------------

    def leaf(self) -> Node:
        if self.chance(0.85):
            return super().leaf()
        return self.pick([
            (1, super().leaf),
            (1 if self.named("vector") else 0, lambda: Node("real", f"dot({self.of('vector')}, {self.of('vector')})")),
            (1 if self.named("struct") else 0, lambda: Node("real", f"{self.of('struct')}.mixed({{}})", (self.own(self.expr(3)),))),
            (1 if self.named("complex") else 0, self.part_of_complex),
            (1 if self.has("half") and self.in_kernel else 0, lambda: Node("real", f"({self.real})__half2float(hf[i])")),
            (1 if self.has("bfloat16") and self.in_kernel else 0, lambda: Node("real", f"({self.real})__bfloat162float(bf[i])")),
            (1 if self.in_kernel else 0, lambda: Node("real", f"__ldg(&{self.r.choice('ab')}[{{}}])", (self.natural_below_n(),))),
            (1, lambda: Node("real", f"static_cast<{self.real}>({{}})", (self.expr(3),))),
        ])  # fmt: skip

    def part_of_complex(self) -> Node:
        return Node("real", f"{self.r.choice(['norm', 'real', 'imag'])}({{}})", (self.complex(1),))

    def natural_below_n(self) -> Node:
        return Node("int", self.r.choice(["i", "idx[i]", "(i + 1) % n", "min((int)i + 2, n - 1)"]))

    def integer(self, depth: int = 0) -> Node:
        if not self.has("bits") or not self.in_kernel or self.chance(0.9):
            return super().integer(depth)
        forms = [
            "(int)(__double_as_longlong((double)cnt[i]) >> 52 & 3)", "(__float_as_int((float)idx[i]) >> 22 & 3)", "(__popc(idx[i]) & 3)",
            "(__clz(cnt[i]) & 3)", "(int)(char)idx[i]", "(__brev(cnt[i]) >> 30)",
        ]  # fmt: skip
        return Node("int", f"(int){self.r.choice(forms)}")

    def of(self, type_: str) -> str:
        found = self.some(type_)
        assert found is not None
        return found.text

    def vector(self) -> Node:
        r = self.real
        known = bool(self.named("vector"))
        return self.pick([
            (3, lambda: Node("vector", f"make_{r}2({{}}, {{}})", (self.bounded(2), self.expr(2)))),
            (1, lambda: Node("vector", f"{r}2⟨({r})({{}}), ({r})({{}})⟩", (self.expr(2), self.expr(2)))),
            (2 if known else 0, lambda: Node("vector", self.of("vector"))),
            (2 if known else 0, lambda: Node("vector", f"({self.of('vector')} + {self.of('vector')})")),
            (2 if known else 0, lambda: Node("vector", f"({{}} * {self.of('vector')})", (self.own(self.expr(2)),))),
            (1 if known else 0, lambda: Node("vector", f"({{}} ? {self.of('vector')} : {self.of('vector')})", (self.condition(2),))),
        ])  # fmt: skip

    def complex(self, depth: int = 0) -> Node:
        c = f"complex<{self.real}>"
        z = self.of("complex") if self.named("complex") else f"{c}(1, 2)"
        made: list[tuple[float, Maker]] = [
            (2, lambda: Node("complex", z)),
            (2, lambda: Node("complex", f"{c}({{}}, {{}})", (self.own(self.bounded(2)), self.own(self.expr(3))))),
        ]
        if depth >= 2:
            return self.pick(made)
        d, one = depth + 1, f"({self.real})"
        return self.pick([
            *made,
            (2, lambda: Node("complex", f"({{}} {self.r.choice('+-')} {{}})", (self.complex(d), self.complex(d)))),
            (1, lambda: Node("complex", f"({{}} * {{}} / ({one}2 + norm({z})))", (self.complex(d), self.complex(d)))),
            (1, lambda: Node("complex", "(-conj({}))", (self.complex(d),))),
            (1, lambda: Node("complex", f"exp({c}(({self.real})0.3 * sin({z}.real()), {z}.imag()))")),
            (1, lambda: Node("complex", f"sqrt({{}} / ({one}4 + norm({z})) + {one}3)", (Node("complex", z),))),
            (1, lambda: Node("complex", f"({{}} / ({c}(2, 1) + {z} / ({one}2 + norm({z}))))", (self.complex(d),))),
        ])  # fmt: skip

    # --- statements ------------------------------------------------------------------------------------------------------------------

    def stmt(self, depth: int) -> Node:
        return super().stmt(depth) if self.chance(0.75) else self.wider(depth)

    def wider(self, depth: int) -> Node:
        self.budget -= 1
        nest = 1.0 if depth < 4 and self.budget > 0 and self.loops < 3 else 0.0
        return self.pick([
            (0.5, lambda: super(Language, self).stmt(depth)),
            (1.5 if self.has("vector") else 0, self.vectors),
            (1.5 if self.has("struct") else 0, self.structs),
            (1.5 if self.has("complex") else 0, self.complexes),
            (1.5 * nest if self.has("switch") else 0, lambda: self.switch(depth)),
            (0.5 if self.in_kernel else 0, self.on_integers),
            (0.5, self.deduced),
            (1 if self.has("greatest") and self.in_kernel and not self.loops else 0, self.greatest),
            (0.7 if self.has("drawn") and self.in_kernel and self.states else 0, self.drawn),
            (0.5 if any(a.writable for a in self.scope.arrays) else 0, self.bound_reference),
            (0.7 * nest, lambda: self.constant_loop(depth)),
        ])  # fmt: skip

    def vectors(self) -> Node:
        if not self.named("vector") or self.chance(0.3):
            name, value = self.fresh("u"), self.vector()
            type_ = self.r.choice([f"{self.real}2", f"{self.real}2", "auto"])
            node = Node("stmt", f"{type_} {name} = {{}};", (value,))
            self.add_vector(name)
            return node
        v = self.of("vector")
        return self.pick([
            (2 if not self.loops else 0, lambda: Node("stmt", f"{v} = {{}};", (self.vector(),))),
            (2, lambda: Node("stmt", f"{v} = make_{self.real}2({{}}, {{}});", (self.bounded(2), self.bounded(2)))),
            (2, lambda: Node("stmt", f"{v} += make_{self.real}2({{}}, {{}});", (self.bounded(2), self.bounded(2)))),
            (1, lambda: Node("stmt", f"{v} = make_{self.real}2({v}.y, sin({v}.x));")),
        ])  # fmt: skip

    def structs(self) -> Node:
        if not self.named("struct") or self.chance(0.3):
            name = self.fresh("s")
            if self.named("struct") and self.chance(0.4):
                node = Node("stmt", f"Local {name} = {self.of('struct')} + {self.of('struct')};")
            else:
                node = Node("stmt", f"Local {name}({{}}, {{}});", (self.own(self.bounded(2)), self.own(self.expr(2))))
            self.add_struct(name)
            return node
        s, t = self.of("struct"), self.of("struct")
        return self.pick([
            (2, lambda: Node("stmt", f"{s}.push({{}});", (self.own(self.bounded(2)),))),
            (2, lambda: Node("stmt", f"{s} *= {{}};", (self.own(Node("real", "tanh({})", (self.expr(2),))),))),
            (1, lambda: Node("stmt", f"{s} = {s} + {t};")),
            (1, lambda: Node("stmt", f"if ({{}}) {s} = {t};", (self.condition(2),))),
            (1 if self.in_kernel and self.has("struct") else 0, lambda: Node("stmt", f"part[i].a = sin({s}.a + part[i].w[{s}.k % 3]);")),
            (0.7 if self.in_kernel else 0, self.whole_part),
        ])  # fmt: skip

    def whole_part(self) -> Node:
        scale = self.own(Node("real", "tanh({})", (self.expr(2),)))
        return Node("stmt", "⟨\nPart e = part[i];\ne.a *= {};\ne.w[1] = tanh(e.w[2] + e.a);\npart[i] = e;\n⟩", (scale,))

    def complexes(self) -> Node:
        c = f"complex<{self.real}>"
        if not self.named("complex") or self.chance(0.3):
            name, value = self.fresh("z"), self.complex()
            node = Node("stmt", f"{c} {name} = {{}};", (value,))
            self.add_complex(name)
            return node
        z, keep = self.of("complex"), f"({self.real})0.5"
        return self.pick([
            (2, lambda: Node("stmt", f"{z} = {keep} * ({{}});", (self.complex(),))),
            (1 if not self.loops else 0, lambda: Node("stmt", f"{z} += {{}};", (self.complex(1),))),
            (1, lambda: Node("stmt", f"{z} *= exp({c}(0, 1) * {z}.real());")),
            (1, lambda: Node("stmt", f"{z} = {c}(tanh({z}.imag()), {{}});", (self.own(self.bounded(2)),))),
        ])  # fmt: skip

    def switch(self, depth: int) -> Node:
        """Cases that fall through, end, or are missing."""
        parts, children = [], [self.natural(4)]
        labels = self.r.sample(["case 0:", "case 1:", "case 2:", "default:"], self.r.randint(2, 4))
        for label in labels:
            parts.append(f"{label} ⟨\n{{}}\n⟩" + self.r.choice(["\nbreak;", "\nbreak;", ""]))
            children.append(self.body(depth + 1, 1, 2))
        return Node("stmt", "switch ({}) ⟨\n" + "\n".join(parts) + "\n⟩", tuple(children))

    def on_integers(self) -> Node:
        name = self.r.choice(["atomicMax", "atomicMin", "atomicAdd", "atomicOr", "atomicSub"])
        return Node("stmt", f"{name}(&top[{{}}], {{}});", (self.natural(4), self.natural(8)))

    def greatest(self) -> Node:
        where = self.r.choice(["idx[i]", "0", "i", "(i + 2) % n"])
        return Node("stmt", f"atomic_max(&mx[{where}], ({self.real})({{}}));", (self.expr(1),))

    def drawn(self) -> Node:
        """A random number of the thread's own generator."""
        name = self.fresh("v")
        kind = self.r.choice(["curand_uniform(&rng)", "curand_normal(&rng)", "curand_uniform_double(&rng)"])
        self.scope.names.append(Name(name, "real"))
        return Node("stmt", f"{self.real} {name} = 0.3 * {kind};")

    def deduced(self) -> Node:
        name, value = self.fresh("v"), self.own(self.expr(1))
        if self.chance(0.5):
            self.scope.names.append(Name(name, "real", False))
            return Node("stmt", f"const auto {name} = ({self.real})({{}});", (value,))
        self.scope.names.append(Name(name, "real"))
        return Node("stmt", f"auto {name} = static_cast<{self.real}>({{}});", (value,))

    def bound_reference(self) -> Node:
        """A reference to an element whose place is computed once."""
        name = self.fresh("r")
        place = self.element(self.r.choice([a for a in self.scope.arrays if a.writable]))
        self.scope.names.append(Name(name, "real"))
        return Node("stmt", f"{self.real}& {name} = {{}};", (place,))

    def constant_loop(self, depth: int) -> Node:
        k, name = self.fresh("k"), self.fresh("K")
        most = self.r.choice([2, 3])
        with self.looping(Name(k, "int", False, most)):
            body = self.body(depth + 1)
        unroll = self.r.choice(["", "#pragma unroll\n"])
        return Node("stmt", f"⟨\nconstexpr int {name} = {most};\n{unroll}for (int {k} = 0; {k} < {name}; {k}++) ⟨\n{{}}\n⟩\n⟩", (body,))

    def scatter(self) -> Node:
        if not self.has("cas") or self.chance(0.5):
            return super().scatter()
        return Node("stmt", f"cas_add(&s[{{}}], ({self.real})({{}}));", (Node("int", self.r.choice(["idx[i]", "0"])), self.expr(1)))

    # --- helpers ---------------------------------------------------------------------------------------------------------------------

    def helper(self) -> Node:
        return self.generic() if self.has("generic") and self.chance(0.6) else super().helper()

    def generic(self) -> Node:
        """A template whose body depends on a number that is known when it is compiled."""
        name = self.fresh("generic")
        with self.function(["return {}"], Name("u", "real"), Name("N", "int", False, 4)):
            first, second = self.body(1, 1, 2), self.body(1, 1, 2)
            last = self.bounded(0)

        def call(depth: int) -> Node:
            given = self.r.choice([f"<{self.real}, {{}}>", f"<{self.real}>"]).format(self.r.randint(0, 3))
            return Node("real", f"{name}{given}({{}})", (self.own(self.expr(max(2, depth))),))

        self.functions.append(call)
        other = " else ⟨\n{}\n⟩" if self.chance(0.5) else "\n{}"
        form = f"template <typename T, int N = 2> __device__ T {name}(T u) ⟨\nif constexpr (N > 1) ⟨\n{{}}\n⟩{other}\nreturn {{}};\n⟩"
        return Node("stmt", form, (first, second, last))

    # --- what the threads of a block do together ---------------------------------------------------------------------------------------

    @contextmanager
    def all_threads(self) -> Iterator[None]:
        """Where threads without an element of their own come too: only numbers and the block's memory are in reach."""
        saved = self.scope, self.in_kernel
        self.scope, self.in_kernel = Scope(list(self.common)), False
        try:
            yield
        finally:
            self.scope, self.in_kernel = saved

    def stage(self, depth: int = 0) -> Node:
        """Something that ends with a barrier, or needs none."""
        with self.all_threads():
            nest = 1 if depth < 2 else 0
            return self.pick([
                (3 if self.has("block") else 0, self.exchange),
                (1 if self.has("block") else 0, self.tree),
                (1 if self.has("block") else 0, self.summed),
                (3 if self.has("warp") else 0, self.shuffle),
                (1 if self.has("warp") else 0, self.vote),
                (3 if self.has("groups") else 0, self.tile),
                (1, lambda: Node("stmt", f"{self.mine()} = {{}};", (self.damped(self.mine()),))),
                (nest, lambda: self.repeated(depth)),
                (0.5 * nest, lambda: self.decided(depth)),
            ])  # fmt: skip

    def decided(self, depth: int) -> Node:
        """All threads of a block take one side."""
        form = self.r.choice(["if (m > 3) ⟨\n{}\n⟩", "if (blockIdx.x < 1) ⟨\n{}\n⟩ else ⟨\nv0 = sin(v0);\n⟩"])
        return Node("stmt", form, (self.stage(depth + 1),))

    def mine(self) -> str:
        return self.r.choice(["v0", "v00"])

    def exchange(self) -> Node:
        v, k = self.mine(), self.r.randint(1, 3)
        where = self.r.choice([f"(threadIdx.x + {k}) % {BLOCK}", f"{BLOCK - 1} - threadIdx.x", str(k), "threadIdx.x / 2", "threadIdx.x"])
        change = self.r.choice([f"0.5 * {v} + 0.4 * sin(tile[{where}] * {{}})", f"tanh(tile[{where}] - {v}) + 0.2 * {{}}"])
        values = (self.bounded(1), self.expr(2))
        return Node("stmt", f"tile[threadIdx.x] = {{}};\n__syncthreads();\n{v} = {change};\n__syncthreads();", values)

    def tree(self) -> Node:
        k = self.fresh("k")
        here, other = "tile[threadIdx.x]", f"tile[threadIdx.x + {k}]"
        join = self.r.choice([f"{here} += {other};", f"{here} = fmax({here}, {other});"])
        loop = f"for (int {k} = {BLOCK // 2}; {k} > 0; {k} >>= 1) ⟨\nif (threadIdx.x < {k}) {join}\n__syncthreads();\n⟩"
        form = f"{here} = {{}};\n__syncthreads();\n{loop}\n{self.mine()} += 0.3 * tile[0];\n__syncthreads();"
        return Node("stmt", form, (self.bounded(1),))

    def summed(self) -> Node:
        where = self.r.choice(["0", "threadIdx.x & 1", "(threadIdx.x * 3 + 1) % 4"])
        return Node(
            "stmt",
            f"tile[threadIdx.x] = 0;\n__syncthreads();\natomicAdd(&tile[{where}], ({self.real})({{}}));\n__syncthreads();\n"
            f"{self.mine()} += 0.2 * tile[threadIdx.x & 1];\n__syncthreads();",
            (self.bounded(1),),
        )

    def shuffle(self) -> Node:
        v = self.mine()
        kind = self.r.choice(["_down", "_up", "_xor", ""])
        width = self.r.choice([4, 4, 2])
        lane = self.r.randrange(width) if kind != "_xor" else self.r.randint(1, width - 1)
        return Node("stmt", f"{v} = 0.5 * {v} + 0.4 * __shfl{kind}_sync(0xf, ({self.real})({{}}), {lane}, {width});", (self.expr(1),))

    def vote(self) -> Node:
        test = self.r.choice([f"threadIdx.x > {self.r.randint(0, 3)}", "i < n", "blockIdx.x == 0"])
        form = self.r.choice(
            ["__any_sync(0xf, {})", "__all_sync(0xf, {})", "(__ballot_sync(0xf, {}) & 2)", "(__popc(__ballot_sync(0xf, {})) > 2)"]
        )
        return Node("stmt", f"if ({form.format(test)}) {self.mine()} = {{}};", (self.bounded(1),))

    def tile(self) -> Node:
        """Lanes of a tile, which is the block or a half of it."""
        v, t, lanes = self.mine(), self.fresh("t"), self.r.choice([4, 4, 2])
        r, value = self.real, f"({self.real})({{}})"
        form = self.r.choice([
            f"{v} = 0.5 * {v} + 0.4 * {t}.shfl_{self.r.choice(['up', 'down', 'xor'])}({value}, 1);",
            f"{v} = 0.5 * {v} + 0.4 * {t}.shfl({value}, {self.r.randrange(lanes)});",
            f"{v} += 0.2 * cg::reduce({t}, {value}, cg::plus<{r}>());",
            f"{v} += 0.2 * cg::reduce({t}, {value}, cg::{self.r.choice(['greater', 'less'])}<{r}>());",
            f"{v} = {t}.any({t}.thread_rank() + blockIdx.x > 2) ? {v} : {value};\n{t}.sync();",
        ])  # fmt: skip
        head = f"auto {t} = cg::tiled_partition<{lanes}>(cg::this_thread_block());"
        return Node("stmt", f"⟨\n{head}\n{form}\n⟩", (self.bounded(1),))

    def repeated(self, depth: int) -> Node:
        k = self.fresh("k")
        head = self.r.choice([f"int {k} = 0; {k} < 2; {k}++", f"int {k} = 0; {k} < m; {k} += 2", f"int {k} = 2; {k} > 0; {k}--"])
        self.scope.names.append(Name(k, "int", False, 4))
        return Node("stmt", f"for ({head}) ⟨\n{{}}\n⟩", (self.stage(depth + 1),))

    # --- the kernel ------------------------------------------------------------------------------------------------------------------

    def thread(self) -> Node:
        self.owned()
        if not self.together:
            return self.with_generator(super().thread)
        own = [v for v in (Name("v0", "real"), Name("v00", "real"))]
        self.common = [*own, Name("c", "real", False), Name("d", "real", False), Name("m", "int", False, 5)]
        self.scope.names += own
        self.loops = 0
        first = [self.stage() for _ in range(self.r.randint(1, 2))]
        self.leaves = ["x[i] *= 0.5;"]  # nobody leaves before a barrier
        with self.inner():
            middle = [self.stmt(0) for _ in range(self.r.randint(1, 4))]
        second = [self.stage() for _ in range(self.r.randint(1, 3))]
        self.leaves = ["return;"]
        with self.inner():
            last = self.with_generator(super().thread)
        start = f"{self.real} v0 = 0.2 * c + 0.1 * (int)threadIdx.x, v00 = i < n ? a[i] : ({self.real})0.3;"
        tile = f"__shared__ {self.real} tile[{BLOCK}];\n"
        form = f"{tile}{start}\n{{}}\nif (i < n) ⟨\n{{}}\n⟩\n{{}}\nif (i < n) ⟨\n{{}}\n⟩"
        return Node("stmt", form, (block(first), block(middle), block(second), last))

    def with_generator(self, thread: Maker) -> Node:
        self.states = self.has("drawn")
        body = thread()
        generator = self.r.choice(["curandState", "curandStatePhilox4_32_10_t"])
        start = f"{generator} rng;\ncurand_init(7, i, 0, &rng);\n{{}}"
        return Node("stmt", start, (body,)) if self.states else body

    def shaped(self, shape: str, helpers: Node, before: Node, body: Node) -> Node:
        made = super().shaped("open" if self.together else shape, helpers, before, body)
        return Node(made.type, self.preamble() + self.with_parameters(made.text), made.children)

    def geometry(self, shape: str, n: int) -> tuple[tuple[int, int], tuple[int, int]]:
        return ((-(-n // BLOCK), 1), (BLOCK, 1)) if self.together else super().geometry(shape, n)

    def preamble(self) -> str:
        lines = [f"#include <{file}>" for feature, files in HEADERS.items() if self.has(feature) for file in files]
        texts = [STRUCTS] * self.has("struct") + [VECTORS] * self.has("vector")
        if self.has("cas"):
            texts.append(CAS_DOUBLE if self.real == "double" else CAS_FLOAT)
        if self.has("greatest"):
            texts.append(GREATEST_DOUBLE if self.real == "double" else GREATEST_FLOAT)
        if self.has("groups"):
            texts.append(GROUPS)
        if self.has("constant"):
            texts.append(f"__constant__ REAL coef[{COEF}];\n")
        return "\n".join([*lines, *texts]).replace("REAL", self.real) + "\n"

    def with_parameters(self, text: str) -> str:
        more = ["int* top"]
        more += [f"{self.real}2* pv"] * self.has("vector") + [f"complex<{self.real}>* zc"] * self.has("complex")
        more += ["Part* part"] * self.has("struct") + ["const __half* hf"] * self.has("half")
        more += [f"{self.real}* mx"] * self.has("greatest") + ["const __nv_bfloat16* bf"] * self.has("bfloat16")
        return text.replace("int* q, ", ", ".join(["int* q", *more, ""]), 1)

    def whole(self) -> Whole:
        made = self.kernel()
        name = f"{made.name}<{made.real}, {self.r.randint(0, 3)}>" if self.has("template") else made.name
        active = set(made.active) | {"pv", "zc", "part", "mx"} | ({"coef"} if self.chance(0.7) else set())
        drawn = {f.name: getattr(made, f.name) for f in fields(made)}
        return Whole(**{**drawn, "name": name, "active": frozenset(active)}, features=self.features)


def whole_kernel(seed: int) -> Whole:
    """The kernel of a seed: the same text for the same seed."""
    sizes = random.Random(~seed)
    return Language(seed, sizes.choice([8, 15, 25, 40])).whole()
