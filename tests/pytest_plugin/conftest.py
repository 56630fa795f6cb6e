"""pytester forgets what was imported while it ran: all of the package is imported before, so that there is one of it, and with it what it
imports when it needs it: a compiled module that comes twice ends the process. But for the sides of frameworks that are not installed."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil

import gpuad

FRAMEWORKS = {f"gpuad.{name}" for name in ("torch", "jax", "cupy", "cupyx") if importlib.util.find_spec(name) is None}

for found in pkgutil.walk_packages(gpuad.__path__, "gpuad."):
    if not found.name.endswith("__main__") and found.name not in FRAMEWORKS:
        importlib.import_module(found.name)
for name in ("islpy", "ml_dtypes"):
    if importlib.util.find_spec(name) is not None:
        importlib.import_module(name)
