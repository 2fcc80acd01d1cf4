"""How a script that runs kernels ends: with its code, or in one line where it cannot run; shared by all of them."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from nkc.ir.errors import NkcError, UsageError


def script() -> str:
    """Return the name of the script that was started."""
    return Path(sys.argv[0]).name


def exit_with(main: Callable[[], int | None]) -> NoReturn:
    """Exit with what a script returns; what it cannot do is one line and the exit code of its kind, as for nkc."""
    try:
        code = main() or 0
    except NkcError as error:
        print("\n".join(error.lines()), file=sys.stderr)
        code = error.exit_code
    except FileNotFoundError as error:
        print(f"{script()}: {error.filename}: no such file or directory", file=sys.stderr)
        code = UsageError.exit_code
    sys.exit(code)


def require_gpu(elsewhere: str = "it runs kernels that were built elsewhere") -> None:
    """Raise UsageError where no GPU is present; elsewhere: what may be done here all the same."""
    if not required("torch").cuda.is_available():
        raise UsageError(f"{script()}: no GPU is present ({elsewhere})")


def required(module: str) -> Any:
    """Return a module that may be missing where nothing is run; the script ends in one line where it is."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        print(f"{script()}: {module} is not installed, and it runs where a GPU is", file=sys.stderr)
        sys.exit(UsageError.exit_code)
