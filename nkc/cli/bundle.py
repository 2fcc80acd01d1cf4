"""`nkc bundle`: looks into a bundle, packed or not."""

import click

from nkc.cli.parts.console import counted
from nkc.cli.parts.options import format_option
from nkc.runtime import bundle as bundles


@click.group("bundle", short_help="List or verify a bundle.")
def command() -> None:
    """Look into a bundle: a build's output directory, or a packed file."""


@command.command("ls", short_help="List its entries, and the digest of its plan.")
@click.argument("path", metavar="BUNDLE", type=click.Path())
@format_option("table", "json")
def list_(path: str, form: str) -> None:
    """List what a bundle holds, and the plan digest that all ranks compare. Checks it as loading does."""
    bundle = bundles.read(path)
    if form == "json":
        import msgspec

        listed = {"plan_digest": bundle.plan_digest(), "targets": bundle.targets, "entries": bundle.manifest.entries}
        click.echo(msgspec.json.format(msgspec.json.encode(listed), indent=2).decode())
        return
    from nkc.cli.parts.console import draw, table

    drawn = table("request", "id", "operation", "target", "tactic or route", "bytes", "for")
    for entry in bundle.manifest.entries:
        size = str(len(bundle.image(entry))) if entry.object is not None else "-"
        routes = sorted({binding.fallback for binding in entry.bindings if binding.fallback is not None})
        chosen = entry.tactic or (f"fallback {', '.join(routes)}" if routes else str(entry.disposition))
        sources = ", ".join(binding.source for binding in entry.bindings)
        drawn.add_row(entry.request, entry.id or "-", entry.operation, entry.target, chosen, size, sources)
    draw(drawn)
    click.echo(f"plan digest {bundle.plan_digest()}")


@command.command("verify", short_help="Check every file against the manifest.")
@click.argument("path", metavar="BUNDLE", type=click.Path())
def verify(path: str) -> None:
    """Check every file of a bundle against its manifest; print each thing wrong.

    Of a packed one every byte is checked. Exit 0 or 4; 2 where there is no bundle.
    """
    bundle = bundles.read(path)
    there = f"{counted(len(bundle.files), 'file')}, {counted(len(bundle.launches), 'kernel')}"
    click.echo(f"{bundle.name}: {there}, all as the manifest says")
