"""From a lowered contract to a code object that has been held against it.

Holds: rendering (one template loader), the include graph, the code digest, toolchains in child processes, inspection
of objects, and the checks of what an object says. Leaves out: choosing (tactics), proving (verify), printing (cli).
Importing this room is cheap: jinja2, networkx and the compiler are loaded where they are used.
"""
