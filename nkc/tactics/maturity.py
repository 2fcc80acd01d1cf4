"""Claims: the maturity that each tactic of a folder claims, in one data file that only a promotion edits."""

import json
from pathlib import Path

from nkc.ir.contract import Maturity
from nkc.ir.errors import ToolError, did_you_mean

CLAIMS_FILE = "claims.json"


def claims_path(folder: Path) -> Path:
    """Return where the claims of an operation's tactics lie."""
    return folder / CLAIMS_FILE


def read_claims(folder: Path) -> dict[str, Maturity]:
    """Return tactic name to claimed maturity; a tactic that is not named claims nothing (`experiment`).

    Raises ToolError for a damaged file or an unknown word.
    """
    path = claims_path(folder)
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ToolError(
            f"{folder.name}/{CLAIMS_FILE}: cannot be read: {error} (restore it from version control)"
        ) from None
    claims = {}
    for name, word in document.items():
        try:
            claims[name] = Maturity(word)
        except ValueError:
            hint = did_you_mean(str(word), [maturity.value for maturity in Maturity])
            raise ToolError(f"{folder.name}/{CLAIMS_FILE}: {name}: unknown maturity `{word}` ({hint})") from None
    return claims


def write_claims(folder: Path, claims: dict[str, Maturity]) -> None:
    """Write the claims, sorted by name, experiments left out."""
    kept = {name: claim.value for name, claim in sorted(claims.items()) if claim is not Maturity.EXPERIMENT}
    claims_path(folder).write_text(json.dumps(kept, indent=2) + "\n")
