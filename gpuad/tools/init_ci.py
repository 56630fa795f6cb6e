"""`gpuad init-ci`: writes the files by which a repository checks its kernels in CI, and never over what is there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TEMPLATES = Path(__file__).parent / "templates"

# Where each template goes in a repository, and what it is.
FILES = {
    "workflows/gpuad-cpu.yml": (".github/workflows/gpuad-cpu.yml", "the kernels on every push, without a GPU"),
    "workflows/gpuad-gpu.yml": (".github/workflows/gpuad-gpu.yml", "the kernels on a GPU, by label and every night"),
    "gpuad.Dockerfile": ("gpuad.Dockerfile", "a container for the checks, with and without CUDA"),
    "pre-commit-config.yaml": (".pre-commit-config.yaml", "the ledger is compared before each commit"),
}


@dataclass(frozen=True)
class Outcome:
    """What became of one file: `written`, `same` (it was there, word for word), or `kept` (another one was there, and still is)."""

    path: Path
    state: str
    what: str

    def __str__(self) -> str:
        if self.state == "kept":
            return f"{self.path}: there is one, which was left as it is (`gpuad init-ci --show {self.path.name}` prints the template)"
        return f"{self.path}: {'was there already' if self.state == 'same' else 'written'}: {self.what}"


def init_ci(folder: Path) -> Iterator[Outcome]:
    """Writes the files into a repository. OSError if one cannot be written; those before it are there by then."""
    for template, (name, what) in FILES.items():
        text, path = (TEMPLATES / template).read_text(encoding="utf-8"), folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with path.open("x", encoding="utf-8", newline="\n") as out:  # fails where a file is, or a link to nowhere
                out.write(text)
            yield Outcome(path, "written", what)
        except FileExistsError:
            same = path.is_file() and path.read_text(encoding="utf-8", errors="replace") == text
            yield Outcome(path, "same" if same else "kept", what)


def shown(name: str) -> str:
    """The template for a file of this name. KeyError, with the names that there are, if there is none."""
    found = {Path(target).name: TEMPLATES / template for template, (target, _) in FILES.items()}
    if name not in found:
        raise KeyError(f"there is no template `{name}`; there are {', '.join(found)}")
    return found[name].read_text(encoding="utf-8")
