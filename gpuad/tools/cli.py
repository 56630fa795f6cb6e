"""The command line: adjoints of CUDA files, checks, what this machine has, and a demonstration.

Every command either does what it says and exits with 0, or prints what is wrong (`file:line:column: error: ...`, the line, a caret) and
exits with 1. Source text and explanations go to the standard output as they are, so that they can be piped; tables are for people.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import numpy as np

try:
    import typer
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Table
except ImportError as missing:  # the library does without them
    raise SystemExit(f"gpuad's commands need {missing.name}: pip install 'gpuad[cli]'") from None

from .. import api, testing
from ..api.adjoint_text import AdjointText
from ..arguments.annotations import Active, Const, Duplicated
from ..distributed import Communicator
from ..errors import GpuadError
from ..frontend.cuda import legal_name
from ..ir.records import numbers
from ..ir.rewrite import walk_stmts
from ..ir.surface import Declaration
from ..ir.types import Pointer, Type
from ..progress import PROGRESS
from . import cache_command, doctor, init_ci, profile_command, program_listing, program_page, selftest, stages
from .cases import Case, is_described, read
from .demo import gray_scott, long, strips, wave
from .demo.outcome import Outcome, check_drawable, draw
from .ledger import command

_PLACED = re.compile(r".+?: error: ")  # a message that says where itself

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
app.add_typer(cache_command.app, name="cache")

SourcePath = Annotated[Path, typer.Argument(metavar="FILE.cu", help="CUDA source")]
KernelName = Annotated[str | None, typer.Option("--kernel", "-k", help="kernel name or name expression; not needed if there is one")]
ConstNames = Annotated[list[str] | None, typer.Option("--const", help="a parameter without a gradient; may be repeated")]
SharedBytes = Annotated[int, typer.Option("--shared-mem", min=0, help="bytes of dynamic shared memory, for a kernel that uses it")]
Defines = Annotated[list[str] | None, typer.Option("--define", "-D", help="a macro, such as BLOCK=128; may be repeated")]
SizeValues = Annotated[list[str] | None, typer.Option("--size", help="a size of the file's cases, such as n=1000; may be repeated")]


def main() -> None:
    """Entry point of the command `gpuad`."""
    app()


def _show_version(wanted: bool) -> None:
    if wanted:
        try:
            print(f"gpuad {metadata.version('gpuad')}")
        except metadata.PackageNotFoundError:
            print("gpuad, run from its folder: it is not installed")
        raise typer.Exit


@app.callback()
def _about(
    version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True, help="print the version and exit")] = False,
) -> None:
    """Differentiates CUDA kernels that overwrite their arguments in place."""


@app.command()
def grad(
    file: SourcePath,
    kernel: KernelName = None,
    const: ConstNames = None,
    shared_mem: SharedBytes = 0,
    define: Defines = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="where to write the adjoint; default is the standard output")
    ] = None,
) -> None:
    """Prints the adjoint of a kernel as CUDA source. All pointers to floats and all floats carry a gradient, except --const ones."""
    with _reported(file):
        text = _adjoint(file, kernel, const or (), shared_mem, define or ()).source
        _write(text, output)


@app.command()
def explain(
    file: SourcePath, kernel: KernelName = None, const: ConstNames = None, shared_mem: SharedBytes = 0, define: Defines = None
) -> None:
    """Says what the adjoint saves and why, and how each gradient adds up."""
    with _reported(file):
        print(_adjoint(file, kernel, const or (), shared_mem, define or ()).explain())


@app.command()
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="CUDA source; with --program a Python script")],
    args: Annotated[list[str] | None, typer.Argument(metavar="[ARG]...", help="for the script")] = None,
    kernel: KernelName = None,
    const: ConstNames = None,
    shared_mem: SharedBytes = 0,
    define: Defines = None,
    stage: Annotated[str | None, typer.Option("--stage", "-s", help="the pass after which to look")] = None,
    against: Annotated[str | None, typer.Option("--against", help="another pass: prints what changed from it to --stage")] = None,
    blame: Annotated[bool, typer.Option("--blame", help="with the pass, or the function, beside each line that wrote it")] = False,
    launched: Annotated[bool, typer.Option("--launched", help="with the passes for the launch of the file's first case")] = False,
    program: Annotated[bool, typer.Option("--program", help="runs a script, and shows what its tapes record")] = False,
    html: Annotated[bool, typer.Option("--html", help="a page for the browser: the kernel and its adjoint side by side")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="where to write the page; default is the standard output")] = None,
) -> None:
    """Shows a kernel as each pass of the pipeline leaves it. Without --stage, lists the passes in order, with how many statements there are
    after each. With --program, runs a script and shows the programs that its tapes record, with the scripts of their reversals. With
    --html, a page that stands alone: the kernel beside its adjoint, for the launch of the file's first case if it has one."""
    if output is not None and not html:
        raise typer.BadParameter("--output is for the page of --html")
    if html and (stage is not None or blame):
        raise typer.BadParameter("--html has no passes: write it without --stage, --against and --blame")
    if program:
        with _reported(file):
            status, listings = program_listing.followed(file, args or ())
            if html:
                _write(program_page.page(file.name, listings), output)
            else:
                print(program_listing.text(listings, blame))
        raise typer.Exit(status)
    if args:
        raise typer.BadParameter(f"arguments ({' '.join(args)}) are for the script of --program")
    if html:
        with _reported(file):
            own = launched or (not const and not shared_mem and is_described(file))
            _write(_adjoint(file, kernel, const or (), shared_mem, define or (), own).html(), output)
        return
    with _reported(file):
        found = stages.collected(lambda: _adjoint(file, kernel, const or (), shared_mem, define or (), launched))
        if stage is None:
            width = max(23, *map(len, found)) + 1
            print("\n".join(f"{name:<{width}}{sum(1 for _ in walk_stmts(made.body)):>6} statements" for name, made in found.items()))
        else:
            print(stages.blamed(found, stage) if blame else stages.text(found, stage, against))


@app.command()
def check(
    file: SourcePath,
    kernel: KernelName = None,
    size: SizeValues = None,
    directions: Annotated[int, typer.Option(min=1, help="random directions to try")] = 3,
    seed: Annotated[int, typer.Option(help="of inputs and directions")] = 0,
) -> None:
    """Checks gradient, races and bounds. Runs the cases that the file describes in its comment `/*gpuad ... */`."""
    with _reported(file):
        sizes = _sizes(size or ())
        cases = [c for c in read(file) if kernel in (None, c.kernel)]
        if not cases:
            raise GpuadError(f"{file}: error: no case for the kernel `{kernel}`")
        if unknown := sorted(set(sizes) - {name for c in cases for name in c.sizes}):
            raise GpuadError(f"{file}: error: no case has a size `{unknown[0]}`")
        passed = [_check_case(file, c, sizes, directions, seed) for c in cases]
    raise typer.Exit(0 if all(passed) else 1)


@app.command(name="ledger")
def ledger_(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="[PATH]...", help="files and folders; default: `kernels` under [tool.gpuad]")
    ] = None,
    update: Annotated[bool, typer.Option("--update", help="write the ledger")] = False,
    check: Annotated[bool, typer.Option("--check", help="compare with the ledger; exit 1 where it grew worse")] = False,
    file: Annotated[Path | None, typer.Option("--ledger", help="the ledger's file; default: gpuad-ledger.toml")] = None,
    sarif: Annotated[str | None, typer.Option("--sarif", metavar="FILE", help="write what is worse as SARIF")] = None,
    code_quality: Annotated[str | None, typer.Option("--code-quality", metavar="FILE", help="write it as GitLab's code quality")] = None,
) -> None:
    """Keeps what reviewers should know of each kernel's adjoint in a file of the repository. Exits with 0 if nothing is worse than it says,
    with 1 if something is, with 2 if there is nothing to compare."""
    if update is check:
        raise typer.BadParameter("write one of --update and --check")
    wanted = command.Wanted(tuple(paths or ()), file, sarif, code_quality)
    raise typer.Exit(command.update(wanted) if update else command.compare_with(wanted))


@app.command(name="init-ci")
def init_ci_(
    folder: Annotated[Path, typer.Argument(help="the repository")] = Path("."),
    show: Annotated[str | None, typer.Option("--show", metavar="NAME", help="print a template, such as gpuad-cpu.yml")] = None,
) -> None:
    """Writes workflows, a Dockerfile and a pre-commit hook into a repository. Never over what is there."""
    with _reported(folder):
        if show is not None:
            try:
                sys.stdout.write(init_ci.shown(show))
            except KeyError as unknown:
                raise GpuadError(f"--show: error: {unknown.args[0]}") from None
            return
        if not folder.is_dir():
            raise GpuadError(f"{folder}: error: there is no such folder")
        for outcome in init_ci.init_ci(folder):
            print(outcome)
    print("Next: `gpuad = true` for pytest and `kernels = [...]` under [tool.gpuad] in pyproject.toml, then `gpuad ledger --update`.")


@app.command(name="doctor")
def doctor_() -> None:
    """Lists what this machine has and lacks. Says what to do about what is missing."""
    findings = doctor.examine()
    table = Table("", "", "found", "what to do", box=None, header_style="dim")
    for finding in findings:
        mark = "[green]yes[/]" if finding.found else "[yellow]no[/]"
        table.add_row(mark, *map(escape, (finding.what, finding.detail, finding.advice)))
    Console().print(table)
    usable, sentence = doctor.verdict(findings)
    print(sentence)
    raise typer.Exit(0 if usable else 1)


@app.command(name="selftest")
def selftest_() -> None:
    """Compiles, runs and differentiates kernels on the device or CPU at hand, and compares with closed forms, in half a minute at most.
    Prints what to paste into an issue. Exits with 1 where something is wrong."""
    results = selftest.run()
    print(selftest.text(results))
    raise typer.Exit(1 if any(r.status == "wrong" for r in results) else 0)


@app.command(name="profile", context_settings={"allow_interspersed_args": False})
def profile_(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT.py", help="a script that records tapes")],
    args: Annotated[list[str] | None, typer.Argument(metavar="[ARG]...", help="for the script")] = None,
    page: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="write a page that stands alone")] = None,
    picture: Annotated[Path | None, typer.Option("--png", metavar="FILE", help="draw a picture")] = None,
    trace: Annotated[Path | None, typer.Option("--trace", metavar="FILE", help="write JSON for Perfetto and Chrome")] = None,
    snapshot: Annotated[Path | None, typer.Option("--torch", metavar="FILE", help="write a pickle for PyTorch's memory viewer")] = None,
    interval: Annotated[float, typer.Option(min=0.001, help="seconds between two looks at process and device")] = 0.01,
) -> None:
    """Runs a script and says which arrays its tapes hold, how many bytes, why, and what would help. Exits as the script does."""
    with _reported(script):
        outputs = {"page": page, "picture": picture, "trace": trace, "torch_snapshot": snapshot}
        status = profile_command.run(script, args or (), interval, outputs)
    raise typer.Exit(status)


@app.command(name="run", context_settings={"allow_interspersed_args": False})
def run_(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT.py", help="a program for CuPy")],
    args: Annotated[list[str] | None, typer.Argument(metavar="[ARG]...", help="for the script")] = None,
    cpu: Annotated[
        bool, typer.Option("--cpu", help="on the CPU, by CuPy's ROCm wheel (pip install cupy-rocm-7-0); needs Linux on x86-64")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="look for races and accesses outside of arrays in raw kernels; slow")] = False,
    seed: Annotated[int | None, typer.Option(help="run work late and in a random order that streams and events allow")] = None,
) -> None:
    """Runs a program for CuPy as it is, on a machine without a GPU. Exits as the program does."""
    from . import cpu_run

    with _reported(script):
        if not cpu:
            raise GpuadError("`gpuad run` is for machines without a GPU: say --cpu; with a GPU, run the script with Python")
        status = cpu_run.run(script, args or (), seed=seed, check=check)
    raise typer.Exit(status)


class Program(StrEnum):
    """What `gpuad demo` can run."""

    wave = "wave"
    gray_scott = "gray-scott"
    long = "long"


PROGRAMS: Mapping[Program, Any] = {Program.wave: wave, Program.gray_scott: gray_scott, Program.long: long}


@app.command(name="demo")
def demo_(
    program: Annotated[
        Program,
        typer.Option(
            help="wave: a plate from its sound; gray-scott: seeds from what has grown; long: growth over 10,000 steps within 64 MB"
        ),
    ] = Program.wave,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="where to write the picture; default is gpuad-demo.png, gpuad-demo-gray-scott.png, gpuad-demo-long.png"
        ),
    ] = None,
    iterations: Annotated[int | None, typer.Option(min=1, help="at most so many iterations")] = None,
) -> None:
    """Recovers a map from what it causes. Every iteration reverses hundreds of in-place launches."""
    module = PROGRAMS[program]
    output = output or Path("gpuad-demo.png" if program is Program.wave else f"gpuad-demo-{program}.png")
    with _reported(output):
        check_drawable(output)
        setting, comm = module.Setting() if iterations is None else module.Setting(iterations=iterations), strips.launched()
        if comm is not None and program is not Program.wave:
            raise GpuadError(f"--program {program} runs in one process; wave is cut into strips")
        if comm is not None and comm.rank:  # the first one tells of it
            strips.invert(setting, testing.array_module(), comm)
            return
        outcome = _inversion(module if comm is None else _together(comm), setting)
        draw(outcome, output, module.QUANTITY)
    print(f"misfit {outcome.loss:.2%} of the start, error of the map {outcome.error:.0%} of the start; picture: {output}")
    if outcome.bytes is not None:
        taken, all_of_it = outcome.bytes, max(outcome.bytes.without, default=0)
        print(f"the tape added {taken.most / 1e6:.1f} MB, of a budget of {taken.budget}; to keep all takes {all_of_it / 1e6:.0f} MB")
    if not outcome.succeeded:
        print("error: the map was not recovered (misfit at most 1 %, error at most 50 % wanted)", file=sys.stderr)
        raise typer.Exit(1)


def _together(comm: Communicator) -> Any:
    """The wave as a program of several processes."""
    return SimpleNamespace(invert=lambda setting, library, report: strips.invert(setting, library, comm, report))


def _inversion(program: Any, setting: Any) -> Outcome:
    library = testing.array_module()
    columns = (TextColumn("[progress.description]{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"), TimeElapsedColumn())
    with PROGRESS.silent(), Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(f"inversion on {'the GPU' if library is not np else 'the CPU'}", total=setting.iterations, state="")

        def report(number: int, loss: float, error: float) -> None:
            progress.update(task, completed=number, state=f"misfit {loss:7.2%}  map error {error:4.0%}")

        outcome: Outcome = program.invert(setting, library, report)
        progress.update(task, total=len(outcome.losses) - 1)
    return outcome


# --- pieces --------------------------------------------------------------------------------------------------------------------------


@contextmanager
def _reported(file: Path) -> Iterator[None]:
    """Turns errors into a message on the standard error and exit status 1, without a traceback."""
    try:
        yield
    except GpuadError as error:
        text = str(error)
        print(text if _PLACED.match(text) else f"error: {text}", file=sys.stderr)
        raise typer.Exit(1) from None
    except BrokenPipeError:  # whoever read the text has had enough of it, as `head` has: the command line ends without a word
        raise
    except OSError as error:
        print(f"{error.filename or file}: error: {error.strerror or error}", file=sys.stderr)
        raise typer.Exit(1) from None


def _write(text: str, output: Path | None) -> None:
    """Writes to a file, or to the standard output."""
    text += "" if text.endswith("\n") else "\n"
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text, encoding="utf-8")


def _adjoint(
    file: Path, name: str | None, const: Sequence[str], shared_mem: int, define: Sequence[str], launched: bool = False
) -> AdjointText:
    kernel: api.TextKernel = api.kernel(file, name or _only_kernel(file), options=[f"-D{macro}" for macro in define])
    if not launched:
        return kernel.adjoint(*_activity(kernel.parameters, const), shared_mem=shared_mem)
    case = next((c for c in read(file) if legal_name(c.kernel) == kernel.name), None)
    if case is None:
        raise GpuadError(f"{file}: error: no case for the kernel `{kernel.name}`: --launched has no numbers to go by")
    args = case.arrays({d.name: d.type for d in kernel.parameters}, 0)
    grid, block, shared_mem = case.geometry({})
    made = [case.annotated(name, value) for name, value in args.items()]
    kinds = [type(a) if isinstance(a, Duplicated | Active) else Const for a in made]
    return kernel.adjoint(*kinds, grid=grid, block=block, args=made, shared_mem=shared_mem)


def _only_kernel(file: Path) -> str:
    """The name of the file's kernel, if it has one."""
    text = file.read_text(encoding="utf-8")
    bare = re.sub(r"//[^\n]*|/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.DOTALL)
    names = re.findall(r"__global__\b[^;{(]*?(?:__launch_bounds__\s*\([^)]*\)\s*[^;{(]*?)?(\w+)\s*\(", bare)
    if len(names) == 1:
        return str(names[0])
    what = f"has the kernels {', '.join(names)}; choose one with --kernel" if names else "has no `__global__` function"
    if not names and file.suffix == ".py":
        what += "; a kernel written in Python is made by the file that defines it: k.adjoint(...), gpuad.testing.check_gradient(k, args)"
    raise GpuadError(f"{file}: error: the file {what}")


def _activity(parameters: Sequence[Declaration], const: Sequence[str]) -> list[type]:
    """Duplicated for pointers to floats, Active for floats, Const for the rest and for `const`; by position, since a parameter may have the
    name of an option of ours."""
    names = [d.name for d in parameters]
    for name in const:
        if name not in names:
            raise GpuadError(f"--const {name}: error: there is no parameter `{name}`; there are {', '.join(names)}")
    active = [Duplicated if isinstance(d.type, Pointer) else Active for d in parameters]
    return [a if d.name not in const and _is_float(d.type) else Const for d, a in zip(parameters, active, strict=True)]


def _is_float(type_: Type) -> bool:
    return any(number.is_float for number in numbers(type_.element if isinstance(type_, Pointer) else type_))


def _sizes(options: Sequence[str]) -> dict[str, int]:
    found = {}
    for option in options:
        name, _, number = option.partition("=")
        if not number.isdigit():
            raise GpuadError(f"--size {option}: error: write a name and a whole number, such as n=1000")
        found[name.strip()] = int(number)
    return found


def _check_case(file: Path, case: Case, sizes: Mapping[str, int], directions: int, seed: int) -> bool:
    try:
        kernel = api.kernel(file, case.kernel)
        own = {name: number for name, number in sizes.items() if name in case.sizes}
        made = case.arrays({d.name: d.type for d in kernel.parameters}, seed, own)
        args = tuple(case.annotated(name, value) for name, value in made.items())
        grid, block, shared_mem = case.geometry(own)
        report = testing.check_gradient(kernel, args, grid=grid, block=block, shared_mem=shared_mem, directions=directions, seed=seed)
    except (AssertionError, GpuadError) as failure:
        text, named = str(failure), re.search(rf"\(({re.escape(str(file))}:\d+:\d+)\)", str(failure))
        placed = text if _PLACED.match(text) else f"{named[1]}: error: {text}" if named else ""
        print(f"{placed}\nin the case at {case.span}" if placed else f"{case.span}: error: {text}", file=sys.stderr)
        return False
    print(f"{case.span}: {report}")
    return True
