"""`nkc emit-c`: builds without a warning, refuses what Python refuses, and launches the same bytes."""

import os
import subprocess
from pathlib import Path

import pytest

from nkc.cli import run

from .support import build_standin, dense_launch, dependent, mapped, read_map, write_bundle

FLAGS = ("-std=c11", "-Wall", "-Wextra", "-Werror")
HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "c" / "main.c"
LOGGER = """
#include <dlfcn.h>
#include <stdio.h>
static void *driver; /* held open, so that closing the library does not take the log with it */
__attribute__((constructor)) static void hold(void) { driver = dlopen("@", RTLD_NOW); }
__attribute__((destructor)) static void print_log(void) {
    void *log = driver ? dlsym(driver, "standin_log") : NULL;
    if (log) fputs((*(const char *(**)(void))&log)(), stderr);
}
"""


def compile_c(*sources: Path, out: Path, options: tuple[str, ...] = ()) -> Path:
    done = subprocess.run(
        ["cc", *FLAGS, *options, *map(str, sources), "-o", str(out), "-ldl"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture
def program(tmp_path):
    """Return a function that builds the guards program for a bundle and runs it on the stand-in driver."""

    def make(
        vendor: str, *extra: str, damage=None, maps: tuple[str, ...] = (), early: tuple[str, ...] = ()
    ) -> tuple[list[str], list[str]]:
        launch, image = dense_launch(arch={"cuda": "sm_90", "hip": "gfx950"}[vendor], m=(0, 64))
        if maps:
            launch, image = mapped(launch, *maps)
        if early:
            launch = dependent(launch, *early)
        bundle = write_bundle(tmp_path / "b", [(launch, image), dense_launch(arch="sm_80", m=3)])
        assert run(["emit-c", str(bundle), "-o", str(tmp_path / "c"), "--prefix", "k", *extra]) == 0
        library = build_standin(tmp_path, vendor)
        if damage is not None:
            damage(bundle)
        logger = tmp_path / "logger.c"
        logger.write_text(LOGGER.replace("@", str(library)))
        binary = compile_c(
            HERE / "standin" / "guards.c",
            tmp_path / "c" / "k.c",
            logger,
            out=tmp_path / "guards",
            options=(f"-I{tmp_path / 'c'}", f"-DLAUNCH=k_{launch.symbol}", f"-DTENSORS=k_for_{launch.symbol}_tensors"),
        )
        environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
        done = subprocess.run(
            [str(binary), str(bundle)], env=environment, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines(), done.stderr.splitlines()

    return make


EXPECTED = """\
good: 0
no rows: 0
too many rows: 17 dense_m0_64_n256_k512: a dim out of its range: `m`: wanted 64, got 65
negative rows: 17 dense_m0_64_n256_k512: a dim out of its range: `m`: wanted 0, got -1
null: 11 dense_m0_64_n256_k512: a null pointer: `b`: wanted 1, got 0
misaligned: 16 dense_m0_64_n256_k512: an address that is not aligned as promised: `a`: wanted 16, got 8
aliased: 19 dense_m0_64_n256_k512: an output that overlaps another argument: `out` at 0x100009f0 over one at 0x10000000
touching: 0
workspace: 18 dense_m0_64_n256_k512: a workspace for a kernel that needs none: `workspace`: wanted 0, got 1
"""
TENSORS = """\
tensors: 0
dtype: 12 dense_m0_64_n256_k512: a tensor of another element type: `a`: wanted 3, got 0
device: 13 dense_m0_64_n256_k512: a tensor on another device: `a`: wanted 0, got 1
shape: 14 dense_m0_64_n256_k512: a tensor of another shape: `out`, axis 0: wanted 5, got 6
strides: 15 dense_m0_64_n256_k512: a tensor of other strides: `b`, axis 0: wanted 512, got 528
rank: 14 dense_m0_64_n256_k512: a tensor of another shape: `b`: wanted 2, got 1
"""


@pytest.mark.parametrize("vendor", ["cuda", "hip"])
@pytest.mark.parametrize("how", [(), ("--by-path",)])
def test_the_same_guards_and_the_same_bytes(program, vendor, how) -> None:
    said, calls = program(vendor, *how)
    lines = [line.rstrip() for line in said]
    assert lines[0] == (
        "wrong version: 1 header and source are of different versions or bundles: `header version`: wanted 1, got 2"
    )
    assert lines[1].startswith("wrong plan: 1 header and source are of different versions or bundles")
    assert lines[2] == "no device: 4 no such device: `device`: wanted 9, got 2"
    assert lines[3] == "open: 0"
    assert lines[4:13] == EXPECTED.splitlines()
    assert lines[14:20] == TENSORS.splitlines()
    assert lines[22] == "a dim out of its range / an unknown status"
    launches = [call for call in calls if call.startswith("launch ")]
    addresses = " ".join(int(f"{at}0000000", 16).to_bytes(8, "little").hex() for at in range(1, 6))
    implicit = " 07000000 02000000 01000000 0001 0100 0100" if vendor == "hip" else ""
    lds = 0 if vendor == "hip" else 65536
    wanted = (
        f"launch dense_m0_64_n256_k512 grid 7 2 1 block 256 1 1 lds {lds} stream 0x51 "
        f"args {addresses} 05000000 {'00' * 8} {'00' * 8}{implicit}"
    )
    assert launches[0] == wanted
    assert launches[2] == wanted  # by tensors
    assert len(launches) == 3
    loads = [call for call in calls if "ModuleLoadData" in call]
    assert len(loads) == 1  # the other target's object never reaches the driver


def test_tensor_maps_are_made_as_in_python(program) -> None:
    said, calls = program("cuda", maps=("a", "b"))
    assert [line.rstrip() for line in said][4:13] == EXPECTED.splitlines()
    (first, *_) = [call for call in calls if call.startswith("launch ")]
    a, b, scales, *_ = first.split(" args ")[1].split()
    wanted = {"type": 0, "strides": (512,), "box": (128, 64), "swizzle": 3, "promotion": 3}
    assert read_map(a) == {"address": 0x10000000, "extents": (512, 5), **wanted}
    assert read_map(b) == {"address": 0x20000000, "extents": (512, 256), **wanted}
    assert scales == (0x30000000).to_bytes(8, "little").hex()


def test_a_dependent_launch_carries_its_attribute_and_the_header_says_what_it_rests_on(program, tmp_path) -> None:
    said, calls = program("cuda", early=("b", "b_scales"))
    assert [line.rstrip() for line in said][4:13] == EXPECTED.splitlines()
    (_, plain) = program("cuda")
    launches = [[call for call in log if call.startswith("launch ")] for log in (calls, plain)]
    assert launches[0] == launches[1]
    places = [place for place, call in enumerate(calls) if call.startswith("launch ")]
    assert [calls[place - 1] for place in places] == ["attribute 6 1"] * 3
    assert not [call for call in plain if call.startswith("attribute")]
    bundle = write_bundle(tmp_path / "x", [(dependent(dense_launch()[0], "b", "b_scales"), dense_launch()[1])])
    assert run(["emit-c", str(bundle), "-o", str(tmp_path / "y")]) == 0
    header = " ".join((tmp_path / "y" / "nkc_kernels.h").read_text().split())
    assert "launched dependent: b, b_scales may be read before the kernels ahead in the stream have ended" in header


def test_c_for_hip_refuses_attributes_by_name(tmp_path, capsys) -> None:
    launch, image = dense_launch(arch="gfx950")
    bundle = write_bundle(tmp_path / "b", [(dependent(launch, "b"), image)])
    assert run(["emit-c", str(bundle), "-o", str(tmp_path / "c")]) == 2
    assert "`attributes.programmatic_dependent_launch`, which HIP does not have" in capsys.readouterr().err


def test_an_object_on_disk_is_held_against_its_digest(program) -> None:
    def damage(bundle: Path) -> None:
        (file,) = [path for path in bundle.glob("*/kernel.cubin") if b"dense_m0" in path.read_bytes()]
        file.write_bytes(file.read_bytes().replace(b"fixed 0", b"fixed 4"))

    said, calls = program("cuda", "--by-path", damage=damage)
    assert said[3].startswith("open: 7 dense_m0_64_n256_k512: an object is not the one that was built: `nk_")
    assert not [call for call in calls if "ModuleLoadData" in call]


def test_a_missing_object_is_named(program) -> None:
    def damage(bundle: Path) -> None:
        for file in bundle.glob("*/kernel.cubin"):
            file.unlink()

    said, _ = program("cuda", "--by-path", damage=damage)
    assert said[3].startswith("open: 6 dense_m0_64_n256_k512: an object cannot be read: `nk_")


@pytest.mark.parametrize("size", [0, 1, 55, 56, 63, 64, 65, 119, 128, 1000])
def test_our_sha256_at_every_kind_of_tail(tmp_path, size) -> None:
    """The generated digest against Python's: the objects' paddings fall where they fall."""
    import hashlib

    from nkc.emit import templates

    text = templates.read("c/bundle.c.j2", templates.root())
    body = text[text.index("/* SHA-256, FIPS") : text.index("/* Return the bytes of an object")]
    data = bytes(index * 7 % 251 for index in range(size))
    source = tmp_path / "sha.c"
    source.write_text(
        "#include <inttypes.h>\n#include <stdint.h>\n#include <stdio.h>\n#include <string.h>\n"
        + body
        + "int main(void) { static unsigned char data["
        + str(size + 1)
        + "]; char hex[65];\nfor (int i = 0; i < "
        + str(size)
        + "; i++) data[i] = (unsigned char)(i * 7 % 251);\n"
        + f"sha256_hex(data, {size}, hex); puts(hex); return 0; }}\n"
    )
    binary = compile_c(source, out=tmp_path / "sha")
    done = subprocess.run([str(binary)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == hashlib.sha256(data).hexdigest()


def test_the_example_runs_from_a_bundle(tmp_path) -> None:
    """The stand-in writes what the kernel would: k, as bf16, in every output."""
    launch = dense_launch(m=1, n=2048, k=4096, fill=0x4580)
    bundle = write_bundle(tmp_path / "b", [launch], source="qwen3.6-35b.o_proj.m1.sm_90.json")
    assert run(["emit-c", str(bundle), "-o", str(tmp_path / "c")]) == 0
    build_standin(tmp_path, "cuda")
    binary = compile_c(
        EXAMPLE, tmp_path / "c" / "nkc_kernels.c", out=tmp_path / "main", options=(f"-I{tmp_path / 'c'}",)
    )
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run([str(binary)], env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "all 2048 outputs are 4096, as they should be\n", done.stderr
    assert "refused, as it should be" in done.stderr


def test_generated_text_is_a_function_of_the_bundle(tmp_path) -> None:
    bundle = write_bundle(tmp_path / "b", [dense_launch(), dense_launch(arch="gfx950", workspace=512)])
    for name in ("x", "y"):
        assert run(["emit-c", str(bundle), "-o", str(tmp_path / name)]) == 0
    for file in ("nkc_kernels.h", "nkc_kernels.c"):
        assert (tmp_path / "x" / file).read_bytes() == (tmp_path / "y" / file).read_bytes()
    assert "#define NKC_KERNELS_DENSE_M4_N256_K512" in (tmp_path / "x" / "nkc_kernels.h").read_text()


def test_the_header_is_cpp_as_well(tmp_path) -> None:
    bundle = write_bundle(tmp_path / "b", [dense_launch(m=(1, 64), scales="m_major")])
    assert run(["emit-c", str(bundle), "-o", str(tmp_path)]) == 0
    command = ["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++"]
    subprocess.run([*command, str(tmp_path / "nkc_kernels.h")], check=True)
    assert "strides [1, m up to a multiple of 4]" in (tmp_path / "nkc_kernels.h").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--prefix", "Two Words"], "no lower-case C identifier"), (["--prefix", "9x"], "no lower-case C identifier")],
)
def test_bad_prefixes_are_refused(tmp_path, capsys, options, message) -> None:
    bundle = write_bundle(tmp_path / "b", [dense_launch()])
    assert run(["emit-c", str(bundle), "-o", str(tmp_path / "c"), *options]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "c").exists()


def test_two_kernels_of_one_symbol_get_names_of_their_own(tmp_path) -> None:
    """And a contract file name that both have is the name of neither."""
    pair = [dense_launch(scales="row_major"), dense_launch(scales="m_major")]
    assert pair[0][0].symbol == pair[1][0].symbol
    assert run(["emit-c", str(write_bundle(tmp_path / "b", pair)), "-o", str(tmp_path)]) == 0
    header = (tmp_path / "nkc_kernels.h").read_text()
    for launch, _ in pair:
        assert f"nkc_kernels_{launch.symbol}_{launch.id[3:11]}(" in header
    assert "nkc_kernels_for_dense" not in header
    compile_c(tmp_path / "nkc_kernels.c", out=tmp_path / "k.o", options=("-c",))
