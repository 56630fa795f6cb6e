"""`tape.save`: the reverse of a recording as files that run without gpuad.

`program_files` writes them, `file_places` says where the memory lies that they name, `function_text` is the text of a rule's reverse with
all that it uses, and `standalone` is copied to `program.py`: it reads, checks and runs what the others have written.
"""
