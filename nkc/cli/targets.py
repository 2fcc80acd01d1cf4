"""`nkc targets`: the chips and their facts."""

import click

from nkc import api
from nkc.cli.parts.options import format_option


@click.command("targets", short_help="List targets, or the facts of one.")
@click.argument("arch", required=False)
@format_option("table", "json")
def command(arch: str | None, form: str) -> None:
    """List the targets, or every fact of ARCH with its unit, source and how it is known."""
    chosen = api.list_targets(arch)
    if form == "json":
        import orjson

        document = [
            {
                "arch": target.arch,
                "isa": target.isa,
                "vendor": target.vendor.value,
                "title": target.title,
                "facts": {
                    name: {"value": fact.value, "unit": fact.unit, "source": fact.source, "basis": fact.basis.value}
                    for name, fact in sorted(target.facts.items())
                },
            }
            for target in chosen
        ]
        click.echo(orjson.dumps({"targets": document}, option=orjson.OPT_INDENT_2).decode())
        return
    from nkc.cli.parts.console import draw, table

    if arch is None:
        drawn = table("target", "isa", "wave", "LDS bytes", "compute units", "chip")
        for target in chosen:
            drawn.add_row(
                target.arch,
                target.isa,
                str(target.wave),
                str(target.lds_bytes),
                str(target.compute_units),
                target.title,
            )
    else:
        drawn = table("fact", "value", "unit", "known", "source", title=f"{arch}: {chosen[0].title}")
        for name, fact in sorted(chosen[0].facts.items()):
            drawn.add_row(name, str(fact.value), fact.unit, fact.basis.value, fact.source)
    draw(drawn)
