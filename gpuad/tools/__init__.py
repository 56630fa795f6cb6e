"""What stands on the library: the command line, the doctor, launch descriptions in CUDA files, the demonstrations."""
