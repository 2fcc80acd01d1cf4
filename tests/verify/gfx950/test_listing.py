"""The listing against the assembler: what we print assembles to the bytes we read."""

import io
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest
from elftools.elf.elffile import ELFFile

from nkc.verify.gfx950.code_object import read_code_object
from nkc.verify.gfx950.decode import decode_all
from nkc.verify.gfx950.listing import instruction_text, listing
from tests.verify.gfx950.cases import FOLDER, code


def test_a_listing_names_the_kernel_and_its_branch_targets():
    text = listing(read_code_object(code("quant")))
    assert text.startswith("quant:\n")
    assert re.search(r"s_branch L\d+ ", text)
    assert re.search(r"^L0:$", text, re.M)
    assert "v_mov_b32_dpp v" in text


def _normal(line: str) -> str:
    line = re.sub(r"\s*(;|//).*", "", line).strip()
    line = re.sub(r"0x[0-9a-f]+", lambda match: str(int(match.group(0), 16)), line)
    return re.sub(r"\s+", " ", line)


ASSEMBLE = """
import sys
from triton.backends.amd.compiler import assemble_amdgcn
sys.stdout.buffer.write(assemble_amdgcn(sys.stdin.read(), "gfx950", ""))
"""


def _all_listings():
    """Return every checked-in kernel, and one assembly of them all with a section each."""
    kernels = [read_code_object(path.read_bytes()) for path in sorted(FOLDER.glob("*.hsaco"))]
    source = ['.amdgcn_target "amdgcn-amd-amdhsa--gfx950"']
    for number, kernel in enumerate(kernels):
        text = re.sub(r"//.*", "", listing(kernel))
        text = re.sub(r"\bL(\d+)\b", rf"L{number}_\1", text).split("\n", 1)[1]
        source += [f'.section .text.k{number},"ax",@progbits', text]
    return kernels, "\n".join(source) + "\n"


def _assert_same_text(assembled, kernels):
    elf = ELFFile(io.BytesIO(assembled))
    for number, kernel in enumerate(kernels):
        section = elf.get_section_by_name(f".text.k{number}")
        assert section.data() == kernel.text[kernel.entry : kernel.end], kernel.symbol


@pytest.mark.toolchain
def test_our_listings_assemble_to_the_bytes_that_they_show(tmp_path):
    """All objects in one file, a section each, through LLVM's assembler: .text comes back byte for byte."""
    kernels, source = _all_listings()
    environment = {"TRITON_CACHE_DIR": str(tmp_path), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    made = subprocess.run(
        [sys.executable, "-c", ASSEMBLE],
        input=source.encode(),
        capture_output=True,
        check=False,
        env=environment,
    )
    assert made.returncode == 0, made.stderr.decode()[-2000:]
    _assert_same_text(made.stdout, kernels)


@pytest.mark.toolchain
@pytest.mark.skipif(find_spec("ziglang") is None, reason="the second assembler, ziglang, is not installed")
def test_an_assembler_of_another_llvm_agrees(tmp_path):
    """The same through the clang in Zig's package: an LLVM that is not Triton's reads our listings alike."""
    kernels, source = _all_listings()
    (tmp_path / "all.s").write_text(source)
    command = ["-m", "ziglang", "clang", "-x", "assembler", "-target", "amdgcn-amd-amdhsa", "-mcpu=gfx950"]
    made = subprocess.run(
        [sys.executable, *command, "-c", "all.s", "-o", "all.o"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
        env={"HOME": str(tmp_path), "ZIG_GLOBAL_CACHE_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )
    assert made.returncode == 0, made.stderr.decode()[-2000:]
    _assert_same_text((tmp_path / "all.o").read_bytes(), kernels)


NAMES = [path.stem for path in sorted(FOLDER.glob("*.hsaco"))]
REBUILD = """
import pathlib, sys
from tests.verify.gfx950.make_objects import build
for name in sys.argv[2:]:
    data, text, _ = build(name)
    pathlib.Path(sys.argv[1], name + ".o").write_bytes(data)
    pathlib.Path(sys.argv[1], name + ".s").write_text(text)
"""


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory):
    """The folder of all objects and their assembly, built anew in one child process, whose start is most of it."""
    place = tmp_path_factory.mktemp("rebuilt")
    environment = {"TRITON_CACHE_DIR": str(place / "cache"), "HOME": str(place), "PATH": "/usr/bin:/bin"}
    subprocess.run([sys.executable, "-c", REBUILD, str(place), *NAMES], check=True, env=environment)
    return place


@pytest.mark.toolchain
@pytest.mark.parametrize("name", NAMES)
def test_the_listing_is_the_compilers_own(name, rebuilt):
    """The same bytes as checked in, and our text equals the assembly line by line."""
    assert (rebuilt / f"{name}.o").read_bytes() == code(name)
    kernel = read_code_object(code(name))
    mine = [_normal(instruction_text(inst)) for inst in decode_all(kernel.text, kernel.entry, kernel.end)]
    lines = (rebuilt / f"{name}.s").read_text().splitlines()
    theirs = [_normal(line) for line in lines if re.match(r"\t(s|v|ds|buffer|global|flat|scratch)_", line)]
    at = 0
    for line in theirs:
        while mine[at] == "s_nop 0" != line:  # padding between the two entries
            at += 1
        if re.match("s_c?branch", line):
            assert mine[at].split()[0] == line.split()[0]
        else:
            assert mine[at] == line
        at += 1
    assert set(mine[at:]) <= {"s_nop 0"}
