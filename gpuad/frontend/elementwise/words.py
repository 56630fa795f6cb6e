"""The user's texts word by word: which names occur, what is refused, and what raw parameters' uses become.

A raw array is CuPy's object with `x[i]`, `x.size()`, `x.shape()[k]`; in the generated kernel it is a pointer. `x[i]` of a contiguous one
means the same for a pointer and stays; of another one the index goes through a function of shape and strides. What is written anew
stays outside of the pieces that trace places back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from ...errors import UnsupportedError
from ...source import Piece, SourceFile, Span
from . import fence

_TOKEN = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[A-Za-z_]\w*|\.?\d[\w.]*|->|::|\s+|.""", re.DOTALL)
_BLANK = re.compile(r"\s|//|/\*")


@dataclass(frozen=True)
class Word:
    """A name, number or sign, and where it begins in its text."""

    text: str
    at: int


def words(text: str) -> list[Word]:
    """The words of C text without blanks and comments."""
    return [Word(m[0], m.start()) for m in _TOKEN.finditer(text) if not _BLANK.match(m[0])]


def names(*texts: str) -> set[str]:
    """All names that occur."""
    return {w.text for text in texts for w in words(text) if w.text[0].isalpha() or w.text[0] == "_"}


@dataclass(frozen=True)
class Texts:
    """What a user has written for one kernel: each a file of its own, by the name of CuPy's argument."""

    name: str
    files: Mapping[str, SourceFile]

    @classmethod
    def of(cls, name: str, **texts: str) -> Texts:
        """Texts by argument; the file of `operation` is called `<operation of NAME>`."""
        return cls(name, {key: SourceFile(f"<{key} of {name}>", text) for key, text in texts.items()})

    def __getitem__(self, key: str) -> SourceFile:
        return self.files[key]

    def names(self, *keys: str) -> set[str]:
        """All names in some of the texts."""
        return names(*(self.files[key].text for key in keys))


def check_words(file: SourceFile, refused: Mapping[str, str] = fence.WORDS) -> None:
    """Refuses the words that the fence names."""
    for word in words(file.text):
        if word.text in refused:
            raise UnsupportedError(refused[word.text].format(word.text), span_of(file, word))


def span_of(file: SourceFile, word: Word) -> Span:
    """Where a word is."""
    before = file.text[: word.at]
    return Span(file, before.count("\n") + 1, word.at - (before.rfind("\n") + 1) + 1, len(word.text))


@dataclass
class Composer:
    """Puts a text together from lines of ours and pieces of the user's."""

    parts: list[str] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    length: int = 0

    def add(self, text: str) -> None:
        """Text of ours."""
        self.parts.append(text)
        self.length += len(text)

    def copy(self, file: SourceFile, begin: int = 0, end: int | None = None) -> None:
        """The user's characters from `begin` to `end`."""
        stop = len(file.text) if end is None else end
        if stop > begin:
            self.pieces.append(Piece(self.length, self.length + stop - begin, file, begin))
            self.add(file.text[begin:stop])

    def made(self, name: str) -> SourceFile:
        """The whole."""
        return SourceFile(name, "".join(self.parts), tuple(self.pieces))


@dataclass(frozen=True)
class Raw:
    """A raw array: `contiguous` ones are indexed as the pointers that they are."""

    name: str
    ndim: int
    contiguous: bool

    @property
    def numbers(self) -> list[str]:
        """Lengths, of all axes but the first, and element strides, by name."""
        lengths = [f"_{self.name}_n{k}" for k in range(1, self.ndim)]
        return [*lengths, *(f"_{self.name}_s{k}" for k in range(self.ndim))]


class RawWriter:
    """Copies a text of the user into a composed one, with the uses of raw arrays and indexers put as the kernel has them. `used` collects
    what the kernel must define for it: `x_size`, `x_shape`, ..."""

    def __init__(self, raws: Mapping[str, Raw], indexers: Mapping[str, tuple[str, ...]], used: set[str]) -> None:
        self.raws, self.indexers, self.used = raws, indexers, used

    def write(self, file: SourceFile, out: Composer) -> None:
        """Copies the whole text."""
        found = words(file.text)
        self.arrays = {a.text for a, b in pairwise(found) if b.text == "["}
        done = self._through(file, found, 0, len(found), 0, out)
        out.copy(file, done)

    def _through(self, file: SourceFile, found: list[Word], first: int, last: int, done: int, out: Composer) -> int:
        """Words first to last; everything before character `done` is copied already. Gives the new `done`."""
        number = first
        while number < last:
            word = found[number]
            after_member = number > 0 and found[number - 1].text in (".", "->", "::")
            if not after_member and (word.text in self.raws or word.text in self.indexers):
                number, done = self._use(file, found, number, done, out)
            else:
                number += 1
        return done

    def _use(self, file: SourceFile, found: list[Word], number: int, done: int, out: Composer) -> tuple[int, int]:
        word = found[number]
        following = found[number + 1].text if number + 1 < len(found) else ""
        if following == ".":
            return self._member(file, found, number, done, out)
        if word.text in self.indexers:
            raise UnsupportedError(fence.INDEXER.format(word.text), span_of(file, word))
        raw = self.raws[word.text]
        if following == "[":
            return self._element(file, found, number, raw, done, out)
        if not raw.contiguous:
            raise UnsupportedError(fence.WHOLE.format(raw.name), span_of(file, word))
        return number + 1, done

    def _member(self, file: SourceFile, found: list[Word], number: int, done: int, out: Composer) -> tuple[int, int]:
        word, member = found[number], found[number + 2] if number + 2 < len(found) else found[number + 1]
        call = [w.text for w in found[number + 3 : number + 5]] == ["(", ")"]
        indexer = word.text in self.indexers
        known = self.indexers.get(word.text, ("size", "shape", "strides"))
        if member.text == "ndim" and not indexer:
            end, text = number + 3, str(self.raws[word.text].ndim)
        elif member.text in known and call:
            end, text = number + 5, f"{'' if indexer else '_'}{word.text}_{member.text}"
            self.used.add(text)
        else:
            members = ", ".join([*([] if indexer else [f"`{word.text}[...]`", "`ndim`"]), *(f"`{m}()`" for m in known)])
            raise UnsupportedError(fence.MEMBER.format(f"{word.text}.{member.text}", members), span_of(file, word))
        out.copy(file, done, word.at)
        out.add(text)
        return end, found[end - 1].at + len(found[end - 1].text)

    def _element(self, file: SourceFile, found: list[Word], number: int, raw: Raw, done: int, out: Composer) -> tuple[int, int]:
        close = _closing(found, number + 1)
        inner = [w.text for w in found[number + 2 : close]]
        if inner and inner[0] == "{":
            raise UnsupportedError(fence.BRACES.format(raw.name), span_of(file, found[number]))
        whole = "".join(inner)
        listed = raw.ndim > 0 and (whole in self.arrays or (whole.endswith(".get()") and whole.removesuffix(".get()") in self.indexers))
        if raw.contiguous and raw.ndim > 0 and not listed:
            return number + 1, done
        opening = found[number + 1].at + 1
        out.copy(file, done, opening)
        self.used.add(f"_{raw.name}_at")
        out.add(f"_at{raw.ndim}((")
        end = found[close].at if close < len(found) else len(file.text)
        done = self._through(file, found, number + 2, close, opening, out)
        out.copy(file, done, end)
        out.add(f"{', '.join([')', *raw.numbers])})")
        return close, end


def _closing(found: list[Word], opening: int) -> int:
    """The word that closes the bracket at `opening`, or the end."""
    depth = 0
    for number in range(opening, len(found)):
        depth += {"[": 1, "]": -1}.get(found[number].text, 0)
        if depth == 0:
            return number
    return len(found)


def macros(text: str) -> Iterator[str]:
    """The definitions of macros in a text."""
    for m in re.finditer(r"^[ \t]*#[ \t]*define((?:\\\n|[^\n])*)", text, re.MULTILINE):
        yield m[1]
