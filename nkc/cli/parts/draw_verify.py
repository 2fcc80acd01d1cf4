"""Draws what a verification showed: one row a kernel and regime."""

from typing import TYPE_CHECKING

from nkc.cli.parts.console import draw, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nkc.verify.check import Row
    from nkc.verify.claims import Claim
    from nkc.verify.engine import Engine
    from nkc.verify.subject import Subject

_WORDS = {"passed": "yes", "failed": "NO", "not_run": "not run", "not_promised": "-"}


def draw_rows(results: "Sequence[tuple[Subject, Engine, tuple[Row, ...]]]") -> None:
    """Print a table of all rows."""
    drawn = table(
        "kernel",
        "regime",
        "verdict",
        "error/bound",
        "RMS ratio",
        "bits",
        "model",
        "repeats",
        "replay",
        "outside",
        "notes",
    )
    for subject, engine, rows in results:
        for place, row in enumerate(rows):
            verdict = ("passed" if engine.runs_object else "agrees") if row.passed else "FAILED"
            repeats = _WORDS[row.repeated.value] + (f" ({row.repeats})" if row.repeated == "passed" else "")
            outside = "clean" if row.outside == "passed" else _WORDS[row.outside.value]
            drawn.add_row(
                subject.launch.symbol if place == 0 else "",
                row.regime,
                verdict,
                f"{row.worst:.3g}",
                f"{row.err_ratio:.2e}",
                _WORDS[row.bit_equal.value],
                _WORDS[row.model_bits.value],
                repeats,
                _WORDS[row.replay.value],
                outside,
                ", ".join(f"{name} {value}" for name, value in sorted(row.notes.items())),
                style=None if row.passed else "red",
            )
    draw(drawn)


def draw_claims(claimed: "Mapping[str, tuple[Claim, ...]]") -> None:
    """Print what holds under every model of the matrix unit, then what holds under one, each over all kernels."""
    if not claimed:
        return
    from nkc.verify.claims import EVERY

    counts: dict[tuple[str, str], list[str]] = {}
    for claims in claimed.values():
        for claim in claims:
            counts.setdefault((claim.model, claim.what), []).append(claim.holds.value)
    sampled = sum(claims[0].sampled < 1 for claims in claimed.values())
    titles = (
        ("\nholds under every model of the matrix unit", [key for key in counts if key[0] == EVERY]),
        ("\nholds under one model", [key for key in counts if key[0] != EVERY]),
    )
    for title, keys in titles:
        drawn = table("claim", "kernels", "", title=title)
        for key in keys:
            answers = counts[key]
            others = [
                f"{answers.count(word)} {said}"
                for word, said in (("failed", "FAILED"), ("not_run", "not run"), ("not_promised", "not predicted"))
                if word in answers
            ]
            if sampled:
                others.append(f"{sampled} of a sample of the workgroups only")
            drawn.add_row(key[1], f"{answers.count('passed')} of {len(answers)}", ", ".join(others))
        draw(drawn)
