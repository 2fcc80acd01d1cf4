"""`nkc emit-c`: C11 launch functions for a bundle."""

from pathlib import Path

import click

from nkc.cli.parts.options import OutputPath
from nkc.runtime import bundle as bundles
from nkc.runtime import kernargs


@click.command("emit-c", short_help="Write C11 launch functions for a bundle.")
@click.argument("path", metavar="BUNDLE", type=click.Path())
@click.option("-o", "--output", metavar="DIR", required=True, type=OutputPath(), help="Where the two files go.")
@click.option("--prefix", metavar="NAME", default="nkc_kernels", show_default=True, help="Of files and of C names.")
@click.option(
    "--by-path", is_flag=True, help="Read the objects from a directory at run time instead of embedding them."
)
def command(path: str, output: str, prefix: str, by_path: bool) -> None:
    """Write PREFIX.h and PREFIX.c: typed launch functions with all guards, no CUDA or HIP header needed."""
    from nkc.emit import c
    from nkc.emit.output import Output

    bundle = bundles.read(path)
    kernels = [
        c.CKernel(
            launch=launch,
            sources=tuple(
                binding.source
                for entry in bundle.manifest.entries
                if entry.id == launch.id
                for binding in entry.bindings
            ),
            path=entry.object or "",
            image=bundle.image(entry),
            kernargs=kernargs.plan(launch).static,
        )
        for entry, launch in bundle.entries()
    ]
    files = c.emit(kernels, prefix=prefix, plan=bundle.plan_digest(), embed=not by_path)
    with Output(Path(output)) as written:
        for name, text in files.items():
            written.file(name, text.encode())
    for alias in sorted(c.disputed(kernels)):
        click.echo(
            f"{prefix}_for_{alias}: left out, the files of several contracts have this name and kernels of their own "
            "(name one otherwise)",
            err=True,
        )
