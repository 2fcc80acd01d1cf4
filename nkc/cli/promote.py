"""`nkc promote`: raises a tactic's claim, when every gate is met and not before."""

import click


@click.command("promote", short_help="Print the gates between a tactic and its next word.")
@click.argument("tactics", metavar="TACTIC...", nargs=-1, required=True)
@click.option("--check", "only_check", is_flag=True, help="Print the gates and change nothing.")
@click.option(
    "--to",
    "word",
    type=click.Choice(["verified", "accepted"]),
    default="verified",
    show_default=True,
    help="The claim to raise to.",
)
def command(tactics: tuple[str, ...], only_check: bool, word: str) -> int:
    """Print the gates of TACTIC: met, missing, stale or failed. The claim is edited where all are met.

    Proofs make a tactic `verified`; `accepted` also takes the last gate, a comparison inside a layer. TACTIC may be a
    pattern (`sm_90.dense.*`). Exit 5 where a gate to the word that was asked for is not met.
    """
    from nkc.cli.parts.console import draw, table
    from nkc.cli.parts.verifying import matching
    from nkc.emit.proofs import book
    from nkc.ir.contract import Maturity
    from nkc.verify.promotion import gates, layer_gate, promote

    to = Maturity(word)
    chosen = list({tactic.name: tactic for pattern in tactics for tactic in matching(pattern)}.values())
    evidence = book()
    drawn = table("tactic", "gate", "state", "what")
    ready = []
    for tactic in chosen:
        found = gates(tactic, evidence)
        in_layers = layer_gate(tactic, evidence)
        for place, gate in enumerate((*found, in_layers)):
            drawn.add_row(tactic.name if place == 0 else "", gate.name, gate.state, gate.what)
        rejected = evidence.in_layers(tactic).rejects
        if all(gate.met for gate in found) and not rejected and (to is Maturity.VERIFIED or in_layers.met):
            ready.append(tactic)
    draw(drawn)
    if ready and not only_check:
        for name in promote(ready, to):
            click.echo(f"{name}: claims `{to}` now", err=True)
    return 0 if len(ready) == len(chosen) else 5
