"""Core IR to C++ for the CPU: the passes that make of a kernel's threads loops over rows and columns, strips and lanes, and their text."""
