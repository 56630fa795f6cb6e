"""Names of C variables: the user's, made unique among the names visible at their declaration by a suffix _2, _3 ..."""

from __future__ import annotations

import re
from collections.abc import Iterable

_KEYWORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t class compl const const_cast constexpr
continue decltype default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long
mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast return short signed
sizeof static static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename union unsigned
using virtual void volatile wchar_t while xor xor_eq
threadIdx blockIdx blockDim gridDim warpSize uint3 dim3 NULL EOF NAN INFINITY errno stdin stdout stderr assert signbit isnan isinf isfinite
min max abs linux unix
"""

RESERVED = frozenset(_KEYWORDS.split())


class Names:
    """The names visible at one place of the text, innermost scope last."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self.scopes: list[set[str]] = [set(RESERVED | set(reserved))]

    def open(self) -> None:
        self.scopes.append(set())

    def close(self) -> None:
        self.scopes.pop()

    def new(self, wish: str) -> str:
        """A name not visible so far, `wish` if possible, from now on visible in the current scope."""
        base = identifier(wish)
        name, number = base, 1
        while any(name in scope for scope in self.scopes):
            number += 1
            name = f"{base}_{number}"
        self.scopes[-1].add(name)
        return name


def identifier(wish: str) -> str:
    """The name with everything that C++ does not allow replaced."""
    name = re.sub(r"\W", "_", wish, flags=re.ASCII) or "t"
    return "_" + name if name[0].isdigit() else name
