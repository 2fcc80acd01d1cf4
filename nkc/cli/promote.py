"""`nkc promote`: raises a tactic's claim, when every gate is met and not before."""

import click


@click.command("promote", short_help="Print the gates between a tactic and `verified`.")
@click.argument("tactics", metavar="TACTIC...", nargs=-1, required=True)
@click.option("--check", "only_check", is_flag=True, help="Print the gates and change nothing.")
def command(tactics: tuple[str, ...], only_check: bool) -> int:
    """Print the gates between TACTIC and `verified`: met, missing or stale. The claim is edited if all are met.

    TACTIC may be a pattern (`sm_90.dense.*`). Exit 5 where a gate is not met.
    """
    from nkc.cli.parts.console import draw, table
    from nkc.cli.parts.verifying import matching
    from nkc.emit.proofs import book
    from nkc.verify.promotion import gates, promote

    chosen = list({tactic.name: tactic for pattern in tactics for tactic in matching(pattern)}.values())
    evidence = book()
    drawn = table("tactic", "gate", "state", "what")
    ready = []
    for tactic in chosen:
        found = gates(tactic, evidence)
        for place, gate in enumerate(found):
            drawn.add_row(tactic.name if place == 0 else "", gate.name, gate.state, gate.what)
        if all(gate.met for gate in found):
            ready.append(tactic)
    draw(drawn)
    if ready and not only_check:
        for name in promote(ready):
            click.echo(f"{name}: claims `verified` now", err=True)
    return 0 if len(ready) == len(chosen) else 5
