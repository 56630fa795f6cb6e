"""Recorded programs as data: what operations do to memory, and the script by which a program is reversed."""
