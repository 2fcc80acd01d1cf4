"""The check on the commits that land: no oracle, recipe or tolerance changes together with a kernel."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.sources import ROOT

CHECK = ROOT / ".ci" / "check-change"
YARDSTICK = "nkc/verify/oracles/dense.py"
KERNEL = "templates/triton/dense.py.j2"
_NOBODY = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}


class Repository:
    """A temporary repository."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str) -> str:
        """Run git, with nobody's configuration."""
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.root,
            env={**os.environ, **_NOBODY},
            check=True,
            capture_output=True,
            encoding="utf-8",
        )
        return done.stdout.strip()

    def commit(self, title: str, **files: str | None) -> None:
        """Write or remove files, and commit."""
        for name, text in files.items():
            self.write(name, text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", title)

    def write(self, name: str, text: str | None) -> None:
        """Write a file, or remove it."""
        path = self.root / name
        if text is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def check(self, *arguments: str) -> tuple[int, list[str]]:
        """Return the check's exit code and its lines."""
        done = subprocess.run(
            [sys.executable, CHECK, *arguments], cwd=self.root, capture_output=True, encoding="utf-8", check=False
        )
        assert done.stdout == ""
        return done.returncode, done.stderr.splitlines()


LONG = "".join(f"line {number}\n" for number in range(50))


@pytest.fixture
def repository(tmp_path):
    made = Repository(tmp_path)
    made.commit("Everything is new", **{YARDSTICK: LONG, KERNEL: LONG, "README.md": "words\n"})
    return made


def test_new_files_are_no_change_of_existing_ones(repository) -> None:
    assert repository.check() == (0, [])
    repository.commit("An operation", **{"nkc/verify/oracles/more.py": "x", "templates/triton/more.py.j2": "x"})
    assert repository.check() == (0, [])
    repository.commit("A kernel changes, an oracle is new", **{KERNEL: "x", "nkc/verify/oracles/third.py": "x"})
    assert repository.check() == (0, [])


def test_one_after_the_other_is_right(repository) -> None:
    repository.commit("The oracle", **{YARDSTICK: "a\n"})
    repository.commit("The kernel", **{KERNEL: "b\n", "README.md": "more\n"})
    assert repository.check() == (0, [])


@pytest.mark.parametrize(
    "yardstick",
    [
        "nkc/verify/oracles/dense.py",
        "nkc/verify/numbers/fp8.py",
        "nkc/verify/regimes/dense.py",
        "nkc/verify/subjects/dense.py",
        "nkc/verify/bounds.py",
        "nkc/verify/quant_bounds.py",
        "nkc/verify/legal_codes.py",
    ],
)
@pytest.mark.parametrize(
    "kernel",
    [
        "templates/triton/dense.py.j2",
        "templates/amdgcn/dense/mfma.s.j2",
        "nkc/tactics/dense/gfx950.py",
        "nkc/ir/epilogues/silu.py",
    ],
)
def test_both_in_one_commit_are_refused_by_name(repository, yardstick, kernel) -> None:
    absent = {name: "1\n" for name in (yardstick, kernel) if not (repository.root / name).exists()}
    repository.commit("Both are there", **absent, **{"README.md": "there\n"})
    repository.commit("Both move", **{yardstick: "2\n", kernel: "2\n"})
    repository.commit("Later", **{"README.md": "later\n"})
    code, lines = repository.check()
    assert code == 1
    assert len(lines) == 1
    assert f" Both move: changes {yardstick} together with {kernel} (" in lines[0]


@pytest.mark.parametrize("name", ["nkc/tactics/select.py", "nkc/verify/check.py", "tests/verify/test_bounds.py"])
def test_other_files_may_change_with_either(repository, name) -> None:
    repository.commit("There", **{name: "1\n"})
    repository.commit("With an oracle", **{name: "2\n", YARDSTICK: "2\n"})
    repository.commit("With a kernel", **{name: "3\n", KERNEL: "3\n"})
    assert repository.check() == (0, [])


def test_removing_an_oracle_is_a_change_of_it_and_a_mere_move_is_none(repository) -> None:
    (repository.root / "nkc/verify/oracles/moved.py").write_text(LONG)
    repository.write(YARDSTICK, None)
    repository.commit("Moved whole", **{KERNEL: "1\n"})
    assert repository.check() == (0, [])
    (repository.root / "nkc/verify/oracles/again.py").write_text(LONG + "one line more\n")
    repository.write("nkc/verify/oracles/moved.py", None)
    repository.commit("Moved and changed", **{KERNEL: "2\n"})
    assert repository.check("HEAD~1..HEAD")[0] == 1
    repository.commit("Removed", **{"nkc/verify/oracles/again.py": None, KERNEL: "3\n"})
    assert repository.check("HEAD~1..HEAD")[0] == 1


def test_only_what_is_landing_is_looked_at(repository) -> None:
    repository.commit("Both move", **{YARDSTICK: "2\n", KERNEL: "2\n"})
    assert repository.check()[0] == 1
    repository.git("update-ref", "refs/remotes/origin/main", "HEAD")
    repository.commit("Later", **{"README.md": "later\n"})
    assert repository.check() == (0, [])
    assert repository.check("HEAD")[0] == 1


def test_a_merge_has_no_change_of_its_own(repository) -> None:
    repository.git("switch", "-q", "-c", "side")
    repository.commit("The oracle", **{YARDSTICK: "2\n"})
    repository.git("switch", "-q", "main")
    repository.commit("The kernel", **{KERNEL: "2\n"})
    repository.git("merge", "-q", "--no-edit", "side")
    assert repository.check() == (0, [])


def test_no_history_is_an_error_of_its_own(tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, CHECK],
        cwd=tmp_path,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


def test_it_runs_with_every_change() -> None:
    assert ".ci/check-change" in (ROOT / ".ci" / "run").read_text()
