"""The fenced blocks of a page, and what it takes to run them as somebody would who follows the page from top to bottom.

A block of `python` runs in the names that the blocks before it left, one of `cuda` or `text` with `title="NAME"` is written to a file of
that name, and of `sh` the lines that begin with `gpuad` are run. A block of `text` without a title is what the block before it printed;
`...` stands for what differs from run to run. A block of `cuda` holds kernels that gpuad takes. One of `py` or `bash` is for
a GPU or a cluster: it is only parsed. A command that fails says so in a comment, `# exits with 1`. All else in `sh` is not run (it
installs, or takes minutes): of that it is checked that the modules, extras and files which it names exist.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ranks import job
from test_cli import run

import gpuad

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FENCE = re.compile(r"^```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"\s{2,}#.*$|^#.*$")
NOT_RUN = ("python", "pip", "git", "pytest", ".ci/run", "mkdocs", "cd", "diff", ".")
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"])


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the file it is meant to be, its text, and the line of the page where the text begins."""

    language: str
    title: str | None
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order. What stands in a block that is indented, as in a list, is none."""
    text = page.read_text(encoding="utf-8")
    return [Block(m["language"], m["title"], m["text"], text.count("\n", 0, m.start("text")) + 1) for m in _FENCE.finditer(text)]


@dataclass
class Reader:
    """Somebody who follows a page in an empty folder, which is the current one."""

    page: Path
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})
    printed: str = ""
    count: int = 0

    def follow(self) -> None:
        """Does what each block of the page says."""
        for block in blocks(self.page):
            self.run(block)

    def run(self, block: Block) -> None:
        """Does what one block says."""
        with _placed(self.page, block):
            getattr(self, f"_{block.language or 'plain'}", self._unknown)(block)

    def _unknown(self, block: Block) -> None:
        raise AssertionError(f"a block of {block.language!r}: nobody knows how to run that")

    def _plain(self, block: Block) -> None:
        """Neither code nor what a command printed."""

    def _python(self, block: Block) -> None:
        if block.title:
            Path(block.title).write_text(block.text, encoding="utf-8")
        self.count += 1
        file = Path(f"block{self.count}.py").absolute()  # a jit function is read from its file
        file.write_text(block.text, encoding="utf-8")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(block.text, str(file), "exec"), self.names)
        self.printed = printed.getvalue()

    def _py(self, block: Block) -> None:
        compile(block.text, str(self.page), "exec")

    def _bash(self, block: Block) -> None:
        subprocess.run(["bash", "-n"], input=block.text, text=True, check=True)

    def _cuda(self, block: Block) -> None:
        if block.title:
            Path(block.title).write_text(block.text, encoding="utf-8")
        for name in re.findall(r"__global__ void (\w+)\(", block.text):
            gpuad.kernel(block.text, name)

    def _text(self, block: Block) -> None:
        if block.title:
            Path(block.title).write_text(block.text, encoding="utf-8")
        else:
            assert agree(block.text, self.printed), f"the page has\n{block.text}\nand what was printed is\n{self.printed}"

    def _sh(self, block: Block) -> None:
        self.printed = ""
        for line in block.text.replace("\\\n", " ").splitlines():
            words = shlex.split(_COMMENT.sub("", line))
            while words and re.fullmatch(r"\w+=.*", words[0]):
                words.pop(0)
            if words[:1] == ["gpuad"] and words[1] != "demo":  # the demonstrations take half a minute, and test_cli.py has them smaller
                result = run(*(ROOT / word if (ROOT / word).is_file() else word for word in words[1:]))
                wanted = {0, 1} if words[1] == "doctor" else {int("exits with 1" in line)}
                assert result.exit_code in wanted, f"{line}\n{result.output}"
                self.printed += result.output
            elif words[:1] == ["pytest"] and Path(words[-1]).is_file():  # one that the page has written
                command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, *words[1:]]
                done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
                assert done.returncode == 0, done.stdout + done.stderr
            elif words[:1] == ["mpiexec"] and Path(words[-1]).is_file():
                done = job(int(words[2]), str(Path(words[-1]).absolute()))
                assert done.returncode == 0, done.stdout + done.stderr
                self.printed += done.stdout
            elif words:
                assert words[0] in ("gpuad", *NOT_RUN), line
                named_things_exist(line, words)

    def _diff(self, block: Block) -> None:
        """What differs between two files of the repository: what is taken away stands in the first, what is added in the second."""
        first, second, *lines = block.text.splitlines()
        for sign, header in (("-", first), ("+", second)):
            (path,) = ROOT.glob(f"*/{header[4:]}")
            held = path.read_text(encoding="utf-8").splitlines()
            assert all(line[1:] in held for line in lines if line.startswith(sign)), header

    def _toml(self, block: Block) -> None:
        tomllib.loads(block.text)


def agree(shown: str, printed: str) -> bool:
    """Whether a text is what was printed, `...` standing for anything, white space at ends of lines and of the text aside."""
    plain = ["\n".join(line.rstrip() for line in text.strip().splitlines()) + "\n" for text in (shown, printed)]
    return doctest.OutputChecker().check_output(plain[0], plain[1], doctest.ELLIPSIS)


def named_things_exist(line: str, words: list[str]) -> None:
    """Of a command that is not run: its modules, the extras of this package, and files of this repository are there."""
    for extras in re.findall(r"(?:\.|gpuad)\[([\w,]+)\]", line):
        assert set(extras.split(",")) <= EXTRAS, line
    for module in re.findall(r"python -m ([\w.]+)", line):
        assert importlib.util.find_spec(module), line
    for word in words[1:]:
        if re.match(r"(tests|kernels|benchmarks|gpuad|docs)/", word):
            assert list(ROOT.glob(word)) or os.path.exists(ROOT / word), line


@contextlib.contextmanager
def _placed(page: Path, block: Block) -> Any:
    """Says where in the page something has failed."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"{page.relative_to(ROOT)}:{block.line}: in this block")
        raise
