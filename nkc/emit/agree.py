"""Whether an object on disk is the one its launch.json describes."""

import hashlib
from pathlib import Path

import msgspec

from nkc.emit.inspect.resources import Resources
from nkc.ir.errors import UsageError
from nkc.ir.launch import Launch


def read_launch(path: Path) -> Launch:
    """Read a launch.json. Raises UsageError for one that is not ours."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Launch)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not a launch record that this nkc reads: {error} (build it again)") from None


def disagreements(data: bytes, resources: Resources, path: Path) -> tuple[str, ...]:
    """Return a line for everything that the object says differently from its launch record."""
    launch = read_launch(path)
    x, y, z = launch.block
    compared = (
        ("sha256", launch.sha256, hashlib.sha256(data).hexdigest()),
        ("symbol", launch.symbol, resources.symbol),
        ("target.isa", launch.target.isa, resources.isa),
        ("target.wave", launch.target.wave, resources.wave),
        ("lds.fixed_bytes", launch.lds.fixed_bytes, resources.lds_fixed_bytes),
        ("attributes.cluster", launch.attributes.cluster, resources.cluster or (1, 1, 1)),
        (
            "attributes.programmatic_dependent_launch",
            launch.attributes.programmatic_dependent_launch,
            not resources.starts_alone,
        ),
        ("kernarg_bytes", launch.kernarg_bytes, resources.kernarg_bytes),
        (
            "arguments",
            [(argument.offset, argument.size) for argument in launch.arguments],
            [(argument.offset, argument.size) for argument in resources.arguments],
        ),
    )
    lines = [
        f"$.{name}: {path.name} says {said}, the object {found}" for name, said, found in compared if said != found
    ]
    if x * y * z > resources.max_threads:
        lines.append(f"$.block: {x * y * z} threads, the object allows {resources.max_threads}")
    return tuple(lines)
