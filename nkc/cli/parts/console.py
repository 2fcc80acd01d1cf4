"""Where rich is made: wide enough in a pipe, plain without a terminal, and loaded only by commands that draw."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PIPE_WIDTH = 1000  # nothing is folded where a program may be reading


def console(*, stderr: bool = False) -> "Console":
    """Return a console; in a pipe it has a fixed width, so that the same input prints the same bytes."""
    from rich.console import Console

    made = Console(stderr=stderr, highlight=False, emoji=False, markup=False)
    if not made.is_terminal:
        made = Console(stderr=stderr, highlight=False, emoji=False, markup=False, width=PIPE_WIDTH, color_system=None)
    return made


def counted(number: int, noun: str) -> str:
    """Return `3 kernels`, and `1 kernel`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def table(*columns: str, title: str | None = None) -> "Table":
    """Return an empty table in the one style that all commands draw."""
    from rich import box
    from rich.table import Table

    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index, column in enumerate(columns):
        made.add_column(column, overflow="fold", no_wrap=index == 0)  # a name in two lines is no name to copy
    return made


def draw(*renderables: object, stderr: bool = False) -> None:
    """Print renderables, without white space at the ends of lines when nobody is at a terminal."""
    target = console(stderr=stderr)
    if target.is_terminal:
        target.print(*renderables, sep="\n")
        return
    import click

    with target.capture() as capture:
        target.print(*renderables, sep="\n")
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()), err=stderr)
