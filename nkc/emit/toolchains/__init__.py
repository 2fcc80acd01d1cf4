"""The compilers behind `emit`, each in a child process of its own with an empty environment.

Holds: one module per toolchain (the parent's side) and the worker that runs in the child.
Leaves out: rendering, and reading what the object says.
A crash, a time-out or a refusal of the compiler is a `ToolError` with its last useful lines.
"""
