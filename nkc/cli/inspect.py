"""`nkc inspect`: what a code object says about itself."""

from pathlib import Path

import click

from nkc import api
from nkc.cli.parts.options import format_option


@click.command("inspect")
@click.argument("path", metavar="OBJECT", type=click.Path(path_type=Path))
@format_option("table", "json")
@click.option("--disassemble", is_flag=True, help="Print the machine code instead.")
def command(path: Path, form: str, disassemble: bool) -> None:
    """Print the resources, arguments and matrix instructions of an HSACO or cubin, and hold it against its launch.json.

    Where OBJECT lies beside the launch.json it was built with, the two must agree (exit 4 if they do not).
    """
    from nkc.emit.inspect import inspect
    from nkc.ir.errors import ToolError

    data = api.read_object(path)
    if disassemble:
        click.echo(api.disassemble(path), nl=False)
        return
    resources = inspect(data, name=path.name)
    if form == "json":
        from nkc.emit.explain import encode

        click.echo(encode(resources).decode(), nl=False)
    else:
        from nkc.cli.parts.draw_object import draw_resources

        draw_resources(resources)
    launch = path.parent / "launch.json"
    if launch.is_file():
        from nkc.emit.agree import disagreements

        found = disagreements(data, resources, launch)
        if found:
            raise ToolError("\n".join(f"{path}: {line}" for line in found))
        click.echo(f"{path.name} agrees with {launch.name}", err=True)
