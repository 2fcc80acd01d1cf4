"""Where a command builds: the folder that was asked for, or one that is gone at the end, and where it fails."""

from pathlib import Path

import pytest

from nkc.cli.parts.scratch import Scratch


class Filled(Scratch):
    """Writes a file, then fails if it is told to."""

    def __init__(self, place: Path | None, *, failing: bool = False) -> None:
        super().__init__(place, "test")
        self._failing = failing
        self.folder = Path()

    def _fill(self, place: Path) -> None:
        self.folder = place
        (place / "x").write_text("")
        if self._failing:
            raise KeyboardInterrupt


def test_a_temporary_folder_is_there_for_the_block_alone() -> None:
    with Filled(None) as filled:
        assert (filled.folder / "x").exists()
        assert filled.folder.name.startswith("nkc-test-")
    assert not filled.folder.exists()


def test_a_folder_that_was_asked_for_stays(tmp_path: Path) -> None:
    with Filled(tmp_path) as filled:
        assert filled.folder == tmp_path
    assert (tmp_path / "x").exists()


def test_where_filling_fails_nothing_temporary_is_left() -> None:
    filled = Filled(None, failing=True)
    with pytest.raises(KeyboardInterrupt):
        filled.__enter__()
    assert not filled.folder.exists()
