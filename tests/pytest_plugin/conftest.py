"""pytester forgets what was imported while it ran: all of the package is imported before, so that there is one of it."""

from __future__ import annotations

import importlib
import pkgutil

import gpuad

for found in pkgutil.walk_packages(gpuad.__path__, "gpuad."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
