"""What all tests share: how Hypothesis runs, and an operation that exists in tests alone."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import nkc.ir.operations
import nkc.tactics

# A loaded machine is no failure.
settings.register_profile("nkc", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("nkc")

_FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture
def rotate_rows(monkeypatch: pytest.MonkeyPatch) -> str:
    """Make the operation `rotate_rows` and its tactics visible, by extending the two packages that list folders."""
    monkeypatch.setattr(nkc.ir.operations, "__path__", [*nkc.ir.operations.__path__, str(_FIXTURES / "operations")])
    monkeypatch.setattr(nkc.tactics, "__path__", [*nkc.tactics.__path__, str(_FIXTURES / "tactics")])
    return "rotate_rows"
