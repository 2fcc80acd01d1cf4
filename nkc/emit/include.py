"""The include closure of a template as a graph: which files a kernel is made of, in an order, without cycles.

The byte hash of a closure changes with every byte and name of its files; the code digest beside it does not.
"""

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from nkc.emit import templates
from nkc.emit.source import TemplateFile
from nkc.ir.errors import ToolError

if TYPE_CHECKING:
    from networkx import DiGraph


@lru_cache(maxsize=256)
def references(name: str, text: str) -> tuple[str, ...]:
    """Return the templates that a template includes, imports or extends, sorted.

    Raises ToolError for text that jinja2 cannot parse, and for an include whose name is computed.
    """
    from jinja2 import TemplateSyntaxError, meta

    environment = templates.environment(name.partition("/")[0])
    try:
        found = set(meta.find_referenced_templates(environment.parse(text, name)))
    except TemplateSyntaxError as error:
        raise ToolError(f"templates/{name}:{error.lineno}: {error.message}") from None
    if None in found:
        raise ToolError(f"templates/{name}: an include with a computed name (write the name out, so that it is hashed)")
    return tuple(sorted(reference for reference in found if reference is not None))


def graph(name: str, root: Path) -> "DiGraph":
    """Return the include graph below a template: an edge leads from a file to the one it includes.

    Every node carries its file's text. Raises ToolError for a missing file, and for a cycle with its path.
    """
    import networkx as nx

    includes = nx.DiGraph()
    waiting = [(name, "")]
    while waiting:
        current, wanted_by = waiting.pop()
        if "text" in includes.nodes.get(current, {}):
            continue
        text = templates.read(current, root, wanted_by=wanted_by)
        includes.add_node(current, text=text)
        for reference in references(current, text):
            includes.add_edge(current, reference)
            waiting.append((reference, f"templates/{current}"))
    if not nx.is_directed_acyclic_graph(includes):
        path = [edge[0] for edge in nx.find_cycle(includes, source=name)]
        raise ToolError(f"templates/{path[0]}: includes itself: {' -> '.join([*path, path[0]])} (break the cycle)")
    return includes


def gather(name: str, root: Path) -> dict[str, str]:
    """Return name and text of every file a template is made of, includers first, ties by name. Raises ToolError."""
    import networkx as nx

    includes = graph(name, root)
    return {file: includes.nodes[file]["text"] for file in nx.lexicographical_topological_sort(includes)}


def closure(texts: Mapping[str, str]) -> tuple[TemplateFile, ...]:
    """Return the gathered files by name and SHA-256."""
    return tuple(
        TemplateFile(name=name, sha256=hashlib.sha256(text.encode()).hexdigest()) for name, text in texts.items()
    )


def closure_digest(files: tuple[TemplateFile, ...]) -> str:
    """Return the SHA-256 of a closure, names and bytes: the hash that renaming a file does change."""
    listing = "".join(f"{file.sha256}  {file.name}\n" for file in sorted(files, key=lambda file: file.name))
    return hashlib.sha256(listing.encode()).hexdigest()
