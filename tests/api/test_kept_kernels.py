"""What was found out about kernels is found again by later processes: whole, for the same kernel only, and whatever becomes of the file."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import pytest
from launch_tools import CASES, arguments, running, shipped

import gpuad
from gpuad import Duplicated
from gpuad.api import kept_kernels
from gpuad.api.kept_kernels import Kept, pickled, unpickled
from gpuad.api.kernels import Kernel
from gpuad.pipeline import certificates
from gpuad.runtime import disk_cache

STEP = """extern "C" __global__ void step(double* v, const double* u, const double* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i < n - 1) v[i] = c[i] * (u[i - 1] + u[i + 1]) - v[i];
}"""
SAID = "import sys; sys.path[:0] = {folders}; import test_kept_kernels as t; print(t.gradient())"


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, in which facts are kept."""
    monkeypatch.setenv(disk_cache.VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv(kept_kernels.VARIABLE, "1")
    monkeypatch.setattr(kept_kernels, "_all", WeakValueDictionary())
    monkeypatch.setattr(kept_kernels, "_held", [])
    return tmp_path / "cache"


def gradient(n: int = 40, text: str = STEP, file: Any = None) -> float:
    """A number that the gradient of three steps comes to, found by a kernel that is new here."""
    step = gpuad.kernel(file or text, "step")
    u, v, c = (Duplicated(np.linspace(1, 2, n)) for _ in range(3))
    with gpuad.Tape() as tape:
        for _ in range(3):
            step[2, 32](v, u, c, n)
            u, v = v, u
    tape.reverse({u: 1.0})
    return float(sum((x.shadow**2).sum() for x in (u, v, c)))


def ended() -> None:
    """As if this process had ended, and another had begun."""
    kept_kernels.save_all()
    kept_kernels._all.clear()


def facts(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.facts"))


def next_process(n: int = 40, text: str = STEP) -> float:
    """As by a process that begins now."""
    ended()
    return gradient(n, text)


def nothing_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on a proof or a parse is an error."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("it was found out before")

    for name in ("refused", "meeting", "accumulated_otherwise"):
        monkeypatch.setattr(certificates, name, refuse)
    monkeypatch.setattr(kept_kernels, "parse", refuse)


# --- what comes back ------------------------------------------------------------------------------------------------------------------


def test_a_known_kernel_is_neither_parsed_nor_proved(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = gradient()
    ended()
    assert len(facts(cache)) == 1
    nothing_is_proved(monkeypatch)
    assert gradient() == first


def test_a_launch_with_other_numbers_is_looked_at(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {n: gradient(n) for n in (40, 33, 5)}
    ended()
    monkeypatch.setenv(disk_cache.VARIABLE, str(cache / "other"))
    gradient(40)
    assert {n: next_process(n) for n in (33, 5, 40)} == found


@pytest.mark.one_of(6)
@pytest.mark.parametrize("name", list(CASES)[::7])
def test_what_is_kept_of_the_shipped_kernels(name: str) -> None:
    """A kernel that works with what was read back gives the same shadows to the bit, and finds out nothing."""
    known, case = shipped(name), CASES[name]
    expected = differentiated(known, name)
    kept = unpickled("", pickled(known._kept))
    again = Kernel(case.file, case.kernel, kept=kept)
    found = differentiated(again, name)
    assert kept.size == kept.written
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(found, expected, strict=True))


def differentiated(kernel: Kernel, name: str) -> list[Any]:
    """The shadows of a case after its reverse, of one launch and on a tape, by either executor."""
    grid, block, shared_mem = CASES[name].geometry({})
    found = []
    for executor in ("host", "reference"):
        with running(executor):
            for recorded in (False, True):
                args = arguments(name)
                if recorded:
                    with gpuad.Tape() as tape:
                        kernel(grid, block, args, shared_mem=shared_mem)
                    tape.reverse(allow_unused=True)
                else:
                    gpuad.autodiff(kernel, grid, block, args, shared_mem=shared_mem, allow_unused=True)
                found += [x.shadow.copy() for x in args if hasattr(x, "shadow") and x.shadow is not None]
    return found


@pytest.mark.one_of(4)
@pytest.mark.parametrize("name", list(CASES)[3::7])
def test_nothing_that_is_kept_names_an_object_by_its_id(name: str) -> None:
    known = shipped(name)
    differentiated(known, name)
    before = list(parts([known._kept.function, known._kept.specializations, known._kept.facts, known._kept.suited]))
    kept = unpickled("", pickled(known._kept))
    ids = {id(x) for x in before if not isinstance(x, int)}
    after = {x for x in parts([kept.function, kept.specializations, kept.facts, kept.suited]) if isinstance(x, int)}
    assert not ids & after


def parts(whole: Any) -> Iterator[Any]:
    """All objects that something holds."""
    seen: dict[int, Any] = {}
    left = [whole]
    while left:
        x = left.pop()
        if id(x) in seen or isinstance(x, str | bytes | type | Enum | None):
            continue
        seen[id(x)] = x
        yield x
        if isinstance(x, dict):
            left += [*x, *x.values()]
        elif isinstance(x, list | tuple | set | frozenset):
            left += x
        else:
            slots = [s for kind in type(x).__mro__ for s in getattr(kind, "__slots__", ()) if s not in ("__weakref__", "_memo")]
            left += [*getattr(x, "__dict__", {}).values(), *(getattr(x, s) for s in slots if hasattr(x, s))]


def test_a_text_that_is_given_again_is_the_kernel_that_is_known(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = gradient()
    nothing_is_proved(monkeypatch)
    assert gradient() == first


# --- for the same kernel only ---------------------------------------------------------------------------------------------------------


def test_another_text_is_another_kernel(cache: Path) -> None:
    first = gradient()
    assert next_process(text=STEP.replace("+ u[i + 1]", "- u[i + 1]")) != first
    assert next_process() == first
    ended()
    assert len(facts(cache)) == 2


def test_another_version_of_the_package_finds_out_anew(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = gradient()
    ended()
    monkeypatch.setattr(kept_kernels, "version", lambda: "another")
    assert gradient() == first
    ended()
    assert len(facts(cache)) == 2


def test_files_that_are_changed_after_they_were_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Facts would be kept under the digest of files that have not found them."""
    monkeypatch.setattr(kept_kernels, "_IMPORTED", 0.0)
    assert kept_kernels.version.__wrapped__() == ""


def test_the_version_is_that_of_all_files(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Read once, and again when a file has another stamp, be it of the same size."""
    package = tmp_path / "package"
    (package / "room").mkdir(parents=True)
    file = package / "room" / "module.py"
    monkeypatch.setattr(kept_kernels, "__file__", str(package / "room" / "kept_kernels.py"))
    monkeypatch.setattr(kept_kernels, "_IMPORTED", float("inf"))
    found = []
    for text in ("a < b", "a > b", "a < b"):
        file.write_text(text)
        os.utime(file, (1e9, 1e9))
        found += [kept_kernels.version.__wrapped__() for _ in range(2)]
    assert found[0] == found[1] == found[4] == found[5] != found[2] == found[3]


def test_a_file_that_the_text_includes_is_read_by_each_process(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "step.cu").write_text('#include "sign.h"\n' + STEP.replace("+ u[i + 1]", "SIGN u[i + 1]"))
    found = []
    for sign in "+-+":
        (tmp_path / "sign.h").write_text(f"#define SIGN {sign}\n")
        found.append(gradient(file=tmp_path / "step.cu"))
        ended()
    assert found[0] == found[2] == gradient() != found[1]


def test_options_are_part_of_the_kernel(cache: Path) -> None:
    text = STEP.replace("- v[i]", "- SHARE * v[i]")
    found = []
    for share in (1, 2, 1):
        k = gpuad.kernel(text, "step", options=[f"-DSHARE={share}"])
        v, u, c = (Duplicated(np.ones(9), np.ones(9)) for _ in range(3))
        gpuad.autodiff(k, 1, 32, (v, u, c, 9))
        found.append(float(v.shadow[4]))
        ended()
    assert found == [-1, -2, -1]


# --- whatever becomes of the file -----------------------------------------------------------------------------------------------------


class Elsewhere:
    """What is read as a call of `os.mkdir`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def damaged(what: str, data: bytes, path: Path) -> bytes:
    """What may lie in the place of an entry, with a checksum that fits but where that is what is damaged."""
    inside = {
        "junk": b"junk",
        "nothing": b"",
        "a call": pickle.dumps(Elsewhere(path / "called")),
        "another class": pickle.dumps((Path("x"), {}, {}, {})),
        "a function of ours": pickle.dumps((gpuad.kernel, {}, {}, {})),
        "another form": pickle.dumps((1, 2)),
        "half": data[32 : len(data) // 2],
    }.get(what)
    return data[: len(data) // 2] if inside is None else sha256(inside).digest() + inside


@pytest.mark.one_of(2)
@pytest.mark.parametrize("what", ["truncated", "junk", "nothing", "a call", "another class", "a function of ours", "another form", "half"])
def test_an_entry_that_is_none_counts_as_absent(cache: Path, tmp_path: Path, what: str, capfd: pytest.CaptureFixture[str]) -> None:
    first = gradient()
    ended()
    (entry,) = facts(cache)
    whole = entry.read_bytes()
    entry.write_bytes(damaged(what, whole, tmp_path))
    assert gradient() == first
    assert not (tmp_path / "called").exists()
    ended()
    assert abs(entry.stat().st_size - len(whole)) < 200  # it was written anew
    assert capfd.readouterr() == ("", "")


def test_an_entry_in_a_folder_that_others_can_write_is_not_read(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gradient()
    ended()
    cache.chmod(0o777)
    assert disk_cache.read(facts(cache)[0].stem, ".facts") is None
    cache.chmod(0o700)
    assert disk_cache.read(facts(cache)[0].stem, ".facts") is not None


def test_a_full_disk(cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    first = gradient()

    def full(self: Path, _: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    ended()
    assert not facts(cache)
    assert gradient() == first
    assert not list(cache.glob("building-*"))
    assert capfd.readouterr() == ("", "")


def test_an_entry_that_is_too_large_is_begun_anew(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = gradient()
    ended()
    whole = facts(cache)[0].stat().st_size
    monkeypatch.setattr(kept_kernels, "MOST", whole - 100)
    gradient(33)
    ended()
    (entry,) = facts(cache)
    assert entry.stat().st_size < whole // 2
    assert gradient() == first


def test_what_cannot_be_written_is_found_out_again(cache: Path) -> None:
    gradient()
    kept = next(k for k in kept_kernels._held if k.facts.known)
    kept.facts.known["unkept"] = lambda: None
    ended()
    assert not facts(cache)


def run(environment: dict[str, str]) -> subprocess.Popen[str]:
    folders = [str(folder) for folder in (Path(__file__).parent, *Path(__file__).parents[1:3])]
    program = SAID.format(folders=folders)
    return subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.nightly
def test_processes_share_a_cache(cache: Path) -> None:
    running = [run({**os.environ, "OMP_NUM_THREADS": "1"}) for _ in range(2)]
    said = [process.communicate(timeout=120) for process in running]
    assert len(facts(cache)) == 1  # before this process, whose path is another one, may save in time
    assert said[0] == said[1] == (f"{gradient()}\n", "")


def test_a_cache_folder_of_the_user_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    environment = {k: v for k, v in os.environ.items() if k != disk_cache.VARIABLE}
    process = run({**environment, "XDG_CACHE_HOME": str(tmp_path / "file"), kept_kernels.VARIABLE: "1", "TMPDIR": str(tmp_path)})
    assert process.communicate(timeout=120) == (f"{gradient()}\n", "")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_kernels_that_are_gone_are_kept(cache: Path) -> None:
    """What they were held by is let go when it is written."""
    gradient()
    assert kept_kernels._held
    ended()
    assert not kept_kernels._held
    assert isinstance(kept_kernels._read(facts(cache)[0].stem), Kept)
