"""What the command line, the configuration and the environment say. Imports nothing but pytest, as every run of pytest comes by here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ..tools.settings import Settings

_SETTINGS = pytest.StashKey["Settings"]()


def is_on(config: pytest.Config) -> bool:
    """True if described launches are collected."""
    return bool(config.getini("gpuad") or config.getoption("--gpuad") or config.getoption("--sanitizer"))


def asked_for(config: pytest.Config) -> str | None:
    """The option of the command line that asks for described launches or for what is found in them."""
    options = ("--gpuad", "--gpuad-sarif", "--gpuad-code-quality", "--sanitizer")
    return next((option for option in options if config.getoption(option)), None)


def configured_by(config: pytest.Config) -> str:
    """The folder and the file that pytest takes its configuration from: of paths on the command line that exist, the folder above all."""
    return f"pytest's rootdir is {config.rootpath}, its configuration {config.inipath or 'in no file'}"


def settings_of(config: pytest.Config) -> Settings:
    """The table [tool.gpuad] of the project."""
    if _SETTINGS not in config.stash:
        from ..errors import GpuadError
        from ..tools.settings import settings

        try:
            config.stash[_SETTINGS] = settings(config.rootpath)
        except GpuadError as error:
            raise pytest.UsageError(str(error)) from None
    return config.stash[_SETTINGS]


def requires_gpu(config: pytest.Config) -> bool:
    """True if a test that wants a GPU fails where there is none, in the place of being skipped."""
    return bool(config.getoption("--gpuad-require-gpu")) or os.environ.get("GPUAD_REQUIRE_GPU") == "1"
