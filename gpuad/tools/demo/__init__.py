"""`gpuad demo`: programs of in-place kernels, run backward to find what cannot be seen.

Each program is a module with a `Setting`, a `QUANTITY` (what its maps show) and `invert(setting, library, report)`, which makes
observations of a true map and recovers the map from them.
"""
