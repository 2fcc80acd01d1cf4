"""The repository as a whole: what must not stand in it, and what its own files say of each other."""

import re
import tomllib

from tests.house.sources import ROOT, texts

TEXTS = texts()

# The patterns are written so that this file does not match itself.
MACHINE_PATH = re.compile(r"(?:^|[^A-Za-z0-9._-])/(?:work|farm|root|tmp|home)/[A-Za-z0-9_]")
WORKPLACE = re.compile(r"(?i)\bsub[-]?agent|\bthe CE[O]\b|helper sessio[n]|\.\./share[d]\b|\bissue #?\d+\b")
MARKETING = re.compile(
    r"(?i)\b(?:blazin[g]|cutting.edg[e]|state.of.the.ar[t]|revolutionar[y]|seamles[s]|effortles[s])\b"
)
UNFINISHED = re.compile(r"\b(?:FIXM[E]|XX[X]|HAC[K])\b")


def hits(pattern: re.Pattern[str], *, but: tuple[str, ...] = ()) -> list[str]:
    """Return `file:line: text` for every line that matches."""
    return [
        f"{name}:{number}: {line.strip()[:120]}"
        for name, text in TEXTS.items()
        if name not in but
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_path_of_somebody_s_machine() -> None:
    assert hits(MACHINE_PATH, but=("tests/house/test_repository.py",)) == []


def test_no_word_about_how_the_work_was_done() -> None:
    assert hits(WORKPLACE) == []


def test_no_marketing_and_nothing_left_half_done() -> None:
    assert hits(MARKETING) == []
    assert hits(UNFINISHED) == []


def test_every_dependency_has_its_reason() -> None:
    text = TEXTS["pyproject.toml"]
    project = tomllib.loads(text)["project"]
    wanted = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    assert wanted
    for requirement in wanted:
        lines = [line for line in text.splitlines() if line.strip().startswith(f'"{requirement}"')]
        assert lines, requirement
        assert all(re.search(r"#\s*\w+", line) for line in lines), f"{requirement}: say why in a comment"


def test_torch_is_pinned_for_development_alone() -> None:
    """Serving images pin Triton through torch: a pin of ours would fight theirs."""
    project = tomllib.loads(TEXTS["pyproject.toml"])["project"]
    assert not any(one.startswith("torch") for one in project["dependencies"])
    for extra in project["optional-dependencies"].values():
        assert all(one == "torch" for one in extra if one.startswith("torch"))
    assert "\ntorch==2.13.0" in TEXTS["requirements-dev.txt"]
    assert "\ntriton==3.9.0" in TEXTS["requirements-dev.txt"]


def test_the_makefile_s_help_names_every_target() -> None:
    makefile = TEXTS["Makefile"]
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE).group(1).split()
    said = "\n".join(line for line in makefile.splitlines() if "@echo 'make " in line)
    for target in set(phony) - {"help", "setup", "check-format"}:
        assert target in said or target == "format", target


def test_the_readme_names_commands_files_and_folders_that_exist() -> None:
    from nkc.cli import command_name

    readme = TEXTS["README.md"]
    modules = re.findall(r"^nkc/cli/([a-z]\w*)\.py$", "\n".join(TEXTS), re.MULTILINE)
    commands = {command_name(module) for module in modules}
    assert len(commands) > 6
    assert set(re.findall(r"`nkc ([a-z][a-z-]+)", readme)) <= commands
    assert commands - set(re.findall(r"\bnkc ([a-z-]+)\b", readme)) == set(), "a command the README does not know"
    for name in re.findall(r"`((?:nkc|templates|examples|benchmarks|tests)/[\w/.-]*)`", readme):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"examples/[\w.-]+\.json", readme):
        assert name in TEXTS, name
    for target in re.findall(r"(?:`|^)make ([a-z-]+)", readme, re.MULTILINE):
        assert re.search(rf"^[a-z -]*\b{target}\b[a-z -]*:", TEXTS["Makefile"], re.MULTILINE), target


def test_the_readme_s_request_id_and_python_names_are_today_s() -> None:
    import nkc

    readme = TEXTS["README.md"]
    request = nkc.identify(ROOT / "examples" / "deepseek-v3.kv_a_proj.m7.gfx950.json")
    assert set(re.findall(r"^request +(nk_[0-9a-f]+)", readme, re.MULTILINE)) == {request}
    assert set(re.findall(r"\bnkc\.([a-z_]+)\(", readme)) <= set(nkc.__all__)


def test_the_readme_s_contract_is_a_contract() -> None:
    from nkc import ir

    (block,) = re.findall(r"```json\n(.*?)```", TEXTS["README.md"], re.DOTALL)
    assert ir.parse(block.encode(), "README.md").operation == "dense"


def test_every_example_is_described_and_follows_its_name() -> None:
    import json

    described = TEXTS["examples/README.md"]
    names = [name for name in TEXTS if re.fullmatch(r"examples/[^/]+\.json", name)]
    assert len(names) >= 12
    for name in names:
        document = json.loads(TEXTS[name])
        stem, arch = re.fullmatch(r"examples/(.*)\.(gfx950|sm_90)\.json", name).groups()
        assert f"`{stem}`" in described, name
        assert document["target"]["arch"] == arch
        assert document["fallback"]
        assert set(document["provenance"]) >= {"model", "layer", "role", "tensor_parallel", "count"}
        m = document["shape"]["m"]
        rows = f"m{m['min']}-{m['max']}" if isinstance(m, dict) else f"m{m}"
        assert rows in stem.split("."), name
