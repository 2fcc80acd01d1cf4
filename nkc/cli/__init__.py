"""The command line: one module per command, each with a click `command`; the only room that prints.

Words go to stderr, data to stdout, readable without colour. Commands are found by listing this folder and loaded one
at a time, so that `nkc id` pays for nothing that `nkc compile` needs. Leaves out: every decision.
"""

import errno
import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from nkc import __version__
from nkc.ir import folder
from nkc.ir.errors import NkcError, did_you_mean

PARTS = "parts"  # the one member of this folder that is no command
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # no fault of ours, wherever it is met
INTERRUPTED, BROKEN_PIPE = (128 + number for number in (2, 13))  # as a shell says it
COLLECT_EVERY = 200_000  # new objects: looking for cycles once is a tenth of a short command, which leaves few


def module_name(command: str) -> str:
    """Return the module that holds a command: `emit-c` lives in `emit_c`, `id` in `id_`."""
    return command.replace("-", "_") + ("_" if command in ("id",) else "")


def command_name(module: str) -> str:
    """Return the command that a module holds."""
    return module.rstrip("_").replace("_", "-")


class _ReaderGoneError(Exception):
    """Whoever read our output has gone. Not an OSError, which click would turn into exit 1: a bug of ours."""


class Commands(click.Group):
    """The commands of this folder, sorted by name, loaded on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        del ctx
        return sorted(command_name(name) for name in folder.members(sys.modules[__name__]) if name != PARTS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load one command."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = folder.load(sys.modules[__name__], module_name(cmd_name)).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is named, or say which one was meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            hint = did_you_mean(args[0], self.list_commands(ctx))
            raise click.UsageError(f"{error.message.rstrip('.')} ({hint})", ctx) from None

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise _ReaderGoneError from None


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", prog_name="nkc", message="%(prog)s %(version)s")
def nkc() -> None:
    """Compile kernel contracts ahead of time, and say why each kernel was chosen.

    Exit codes: 0 done, 1 a bug in nkc, 2 bad usage or bad contract, 3 unsupported, 4 a tool failed or the object
    disagrees with its contract, 5 verification failed.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run nkc and exit. No traceback reaches a user: an error is one line, a bug says where it arose."""
    import gc
    import signal

    gc.set_threshold(COLLECT_EVERY)
    signal.signal(signal.SIGTERM, _terminate)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # else `nohup`: to be lived through
        signal.signal(signal.SIGHUP, _terminate)
    _write_whole()
    sys.exit(run(arguments))


def _write_whole() -> None:
    """Put a buffer behind standard output where `PYTHONUNBUFFERED`, which images set, took it away.

    Without one Python drops what a write left over: output that a full disk cut off would end in exit 0.
    """
    if isinstance(raw := getattr(sys.stdout, "buffer", None), io.RawIOBase):
        old = sys.stdout
        sys.stdout = open(  # noqa: SIM115 - open until the end
            raw.fileno(), "w", encoding=old.encoding, errors=old.errors, closefd=False
        )


def _terminate(number: int, frame: object) -> NoReturn:
    """End as after an interrupt, so that a build which is called off ends its child and removes its scratch folder."""
    del frame
    raise SystemExit(128 + number)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run nkc and return its exit code."""
    try:
        code = nkc.main(args=None if arguments is None else list(arguments), prog_name="nkc", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except NkcError as error:
        for line in error.lines():
            click.echo(line, err=True)
        return error.exit_code
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.ClickException as error:
        click.echo(f"nkc: {error.format_message()}", err=True)
        return 2
    except (click.Abort, KeyboardInterrupt):
        click.echo("nkc: interrupted", err=True)
        return INTERRUPTED
    except _ReaderGoneError:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())  # what is left in the buffer has nowhere to go
        return BROKEN_PIPE
    except Exception as error:
        if isinstance(cause := error.__cause__, KeyboardInterrupt | SystemExit):
            # Python 3.11 turns what ends a program into RuntimeError where a class is being made.
            if isinstance(cause, SystemExit):
                return cause.code if isinstance(cause.code, int) else 1
            click.echo("nkc: interrupted", err=True)
            return INTERRUPTED
        if isinstance(error, OSError) and (said := _no_room(error)) is not None:
            click.echo(said, err=True)
            return 4
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:  # all names that nkc makes up are short
            click.echo(f"{error.filename}: {os.strerror(error.errno).lower()}", err=True)
            return 2
        click.echo(f"nkc: this is a bug in nkc: {_describe(error)}", err=True)
        return 1


def _no_room(error: OSError) -> str | None:
    """Return the line for a full disk, or for a machine without a folder for temporary files; None for other errors."""
    if error.errno in FULL:
        return f"{error.filename or 'nkc'}: cannot be written: {os.strerror(error.errno or 0).lower()}"
    words = error.strerror or ""
    if error.filename is None and words.startswith("No usable temporary directory"):  # tempfile's, which gives no place
        return f"nkc: {words[0].lower()}{words[1:]} (set TMPDIR to a folder that can be written)"
    return None


def _describe(error: Exception) -> str:
    """Return what and where of an unexpected error in one line."""
    import traceback

    frame = traceback.extract_tb(error.__traceback__)[-1]
    notes = "; ".join(getattr(error, "__notes__", ()))
    place = f"{frame.filename.rpartition('/nkc/')[2]}:{frame.lineno}"
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words} (at {place}{'; ' + notes if notes else ''})"
