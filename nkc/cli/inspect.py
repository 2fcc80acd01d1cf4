"""`nkc inspect`: what a code object says about itself."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nkc import api
from nkc.cli.parts.options import format_option

if TYPE_CHECKING:
    from nkc.emit.inspect import Resources
    from nkc.verify.gfx950.profile_record import ProfileRecord
    from nkc.verify.static import CheckResult


@click.command("inspect", short_help="Show what an object uses and holds.")
@click.argument("path", metavar="OBJECT", type=click.Path(path_type=Path))
@format_option("table", "json")
@click.option("--disassemble", is_flag=True, help="Print the machine code instead.")
@click.option("--profile", is_flag=True, help="gfx950: add memory accesses, bank conflicts, waits, and a loop model.")
def command(path: Path, form: str, disassemble: bool, profile: bool) -> None:
    """Print the resources, arguments and matrix instructions of an HSACO or cubin, and hold it against its launch.json.

    A gfx950 object is also held against the static checks and the rules about wait states. Where OBJECT lies beside
    the launch.json it was built with, the two must agree. Exit 4 where anything does not hold.
    """
    from nkc.emit.inspect import inspect

    data = api.read_object(path)
    if disassemble:
        click.echo(api.disassemble(path), nl=False)
        return
    resources = inspect(data, name=path.name)
    checks = api.check_code(path)
    found = api.profile(path) if profile else None
    if form == "json":
        click.echo(_document(resources, checks, found), nl=False)
    else:
        from nkc.cli.parts.draw_object import draw_checks, draw_resources
        from nkc.cli.parts.draw_profile import draw_profile

        draw_resources(resources)
        if checks:
            draw_checks(checks)
        if found is not None:
            draw_profile(found)
    _hold(path, data, resources, checks)


def _document(resources: "Resources", checks: "tuple[CheckResult, ...]", found: "ProfileRecord | None") -> str:
    """Return the resources as JSON, with the checks of a machine code that has some, and a profile where asked."""
    import msgspec
    import orjson

    document: dict[str, Any] = msgspec.to_builtins(resources)
    if checks:
        document["checks"] = msgspec.to_builtins(checks)
    if found is not None:
        document["profile"] = msgspec.to_builtins(found)
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()


def _hold(path: Path, data: bytes, resources: "Resources", checks: "tuple[CheckResult, ...]") -> None:
    """Say what holds on stderr. Raises ToolError with a line for everything that does not."""
    from nkc.ir.errors import ToolError

    wrong = [f"{result.check}: {result.told} (wanted: {result.holds})" for result in checks if not result.held]
    launch = path.parent / "launch.json"
    if launch.is_file():
        from nkc.emit.agree import disagreements

        wrong += disagreements(data, resources, launch)
    if wrong:
        raise ToolError("\n".join(f"{path}: {line}" for line in wrong))
    if checks:
        click.echo(f"{path.name} holds all {len(checks)} static checks", err=True)
    if launch.is_file():
        click.echo(f"{path.name} agrees with {launch.name}", err=True)
