"""`nkc split`: one contract with a range of rows becomes several, and a bundle of them picks by the rows."""

from pathlib import Path

import click

from nkc.cli.parts.options import OutputPath, contract_argument


class _Cuts(click.ParamType):  # type: ignore[type-arg]
    """Numbers with commas between them."""

    name = "cuts"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Return the numbers, or fail as a usage error."""
        try:
            return tuple(int(word) for word in str(value).split(","))
        except ValueError:
            self.fail(f"`{value}` is not numbers with commas between them (16,64,256)", param, ctx)


@click.command("split", short_help="Cut a contract's range of rows into several contracts.")
@contract_argument()
@click.option("--at", "cuts", metavar="M,M,...", required=True, type=_Cuts(), help="Where a part ends, inclusive.")
@click.option("-o", "--output", "out", metavar="DIR", type=OutputPath(path_type=Path), help="Where (beside CONTRACT).")
def command(contract: str, cuts: tuple[int, ...], out: Path | None) -> None:
    """Write one contract for each part of CONTRACT's range of m: --at 16,64 makes min..16, 17..64, 65..max.

    Everything else, notes too, stays as it is. Built into one bundle, exactly one of them accepts each number of rows.
    """
    from nkc import ir
    from nkc.emit.output import Output
    from nkc.ir.contract import dim_max, dim_min
    from nkc.ir.errors import UsageError
    from nkc.ir.split import split
    from nkc.ir.written import write_contract

    source = Path(contract)
    try:
        parts = split(ir.read(source), cuts)
    except UsageError as error:
        raise UsageError(f"{contract}:{error}") from None
    place = source.parent if out is None else out
    whole = _rows(dim_min(parts[0].shape["m"]), dim_max(parts[-1].shape["m"]))
    written = []
    with Output(place.absolute()) as output:
        for part in parts:
            name = _named(source.stem, whole, _rows(dim_min(part.shape["m"]), dim_max(part.shape["m"])))
            output.file(name, write_contract(part))
            written.append(place / name)
    for path in written:
        click.echo(str(path))


def _rows(low: int, high: int) -> str:
    """Return how a file's name says a range of rows."""
    return f"m{low}" if low == high else f"m{low}-{high}"


def _named(stem: str, whole: str, part: str) -> str:
    """Return the file of a part: the contract's own, with the part's rows where the whole range stands in the name."""
    words = stem.split(".")
    if words.count(whole) == 1:
        words[words.index(whole)] = part
    else:
        words.append(part)
    return ".".join(words) + ".json"
