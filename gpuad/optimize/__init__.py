"""Passes over the core IR that keep what a kernel computes: dead code, common subexpressions, privatisation, factoring, static loops, and
canonical forms of indices and bounds. Each takes valid IR and gives valid IR."""
