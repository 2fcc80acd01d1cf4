"""Every dense tactic through the compiler: no spill, what was promised, and opcode tables that agree with listings."""

import itertools
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from nkc.emit.hold import hold
from nkc.emit.inspect import Resources, gfx9, inspect
from nkc.emit.inspect.elf import read_elf
from nkc.emit.render import render
from nkc.emit.source import CodeObject
from nkc.emit.toolchains.by_language import Toolchains
from nkc.ir import targets
from nkc.ir.contract import Contract
from nkc.ir.frozen import FrozenMap
from nkc.tactics import Tactic, tactics_of
from nkc.tactics.tactic import Lowered
from tests.fixtures.listing import listed, listed_together
from tests.fixtures.toolchain import nvrtc_is_installed

pytestmark = pytest.mark.toolchain

TACTICS = tactics_of("dense")


@pytest.fixture(scope="module")
def toolchain() -> Iterator[Toolchains]:
    with Toolchains() as running:
        yield running


def production(tactic: Tactic) -> Contract:
    """Return N=576 at the largest m up to 1000 that the tactic admits, with a partial last row of tiles.

    K is 7168, else 16384 for tactics whose warps share k in whole rounds. N is 640 for those that quantise groups.
    """
    base = tactic.proofs(tactic)[0]
    for m, n, k in itertools.product((1000, 250, 60, 30, 14, 1), (576, 640), (7168, 16384)):
        contract = msgspec.structs.replace(base, shape=FrozenMap({"m": m, "n": n, "k": k}))
        if all(predicate.check(contract) is None for predicate in tactic.predicates):
            return contract
    raise AssertionError(f"{tactic.name} admits none of them")


def compiled(toolchain: Toolchains, tactic: Tactic, contract: Contract) -> tuple[CodeObject, list[str]]:
    if tactic.kernel.language == "cuda" and not nvrtc_is_installed():
        pytest.skip("NVRTC is not installed (pip install 'nkc[nvrtc]')")
    lowered = tactic.lower(contract, tactic)
    source = render(Lowered(contract=lowered, tactic=tactic))
    built = toolchain.compile(source, targets.get(tactic.target))
    return built, [f"{reason.predicate}: {reason.actual}" for reason in hold(built, source, lowered, tactic)]


@pytest.fixture(scope="module")
def made(toolchain: Toolchains) -> Callable[[Tactic], tuple[CodeObject, list[str]]]:
    """What compiles a tactic's production shape, once for all that look at the object."""
    known: dict[str, tuple[CodeObject, list[str]]] = {}

    def make(tactic: Tactic) -> tuple[CodeObject, list[str]]:
        if tactic.name not in known:
            known[tactic.name] = compiled(toolchain, tactic, production(tactic))
        return known[tactic.name]

    return make


@pytest.mark.parametrize("tactic", TACTICS, ids=[tactic.name for tactic in TACTICS])
def test_a_production_shape_builds_without_a_spill(
    made: Callable[[Tactic], tuple[CodeObject, list[str]]], tactic: Tactic
) -> None:
    built, disagreements = made(tactic)
    assert disagreements == []
    assert built.resources.scratch_bytes == 0
    texts = "".join(text for _, text in built.intermediates)
    if built.kind == "hsaco":
        assert built.resources.elf_flags == 0x54F
        assert matrix(built.resources) == listed_mfma(dict(built.intermediates)["amdgcn"])
        assert count_instructions(built) == listed_instructions(dict(built.intermediates)["amdgcn"])
    else:
        assert built.resources.isa == "sm_90a"
    assert not re.search(rb"/(?:tmp|root|home|usr|work)/", built.data)
    assert "/tmp/" not in texts


@pytest.mark.parametrize("family", sorted({tactic.family for tactic in TACTICS if tactic.target == "sm_90"}))
def test_what_is_read_from_a_production_shape_is_what_nvdisasm_lists(
    made: Callable[[Tactic], tuple[CodeObject, list[str]]], family: str
) -> None:
    objects = [made(tactic)[0] for tactic in TACTICS if tactic.family == family]
    for built, listing in zip(objects, listed_together(each.data for each in objects), strict=True):
        assert matrix(built.resources) == matrix_listed(listing), built.symbol
        assert built.resources.fp32_fma == len(re.findall(INSTRUCTION.format("FFMA"), listing)), built.symbol
        assert matrix_listed(listing) or built.resources.fp32_fma, built.symbol


@pytest.mark.parametrize("tactic", TACTICS, ids=[tactic.name for tactic in TACTICS])
def test_short_loops_build_without_a_spill_too(toolchain: Toolchains, tactic: Tactic) -> None:
    """Compilers unroll short loops whole; registers then run out at some K that no production shape has."""
    for contract in tactic.proofs(tactic)[1:3]:
        assert compiled(toolchain, tactic, contract)[1] == []


@pytest.mark.parametrize(
    "name",
    [
        "sm_90.dense.fp8_wave_64x32x128_s16_k2",
        "sm_90.dense.fp8_wave_64x64x128_s6_k2_o2",
        "sm_90.dense.fp8_wave_128x128x128_s5_k2",
    ],
)
def test_ctas_of_a_cluster_meet_without_a_fence_of_the_whole_gpu(toolchain: Toolchains, name: str) -> None:
    """A release on their barrier, or on an arrival in another CTA, is one, and waits for all that is under way."""
    tactic = next(tactic for tactic in TACTICS if tactic.name == name)
    for contract in (production(tactic), tactic.proofs(tactic)[2]):
        listing = listed(compiled(toolchain, tactic, contract)[0].data)
        assert len(re.findall(INSTRUCTION.format("UCGABAR_WAIT"), listing)) >= 1
        assert not re.findall(INSTRUCTION.format(r"MEMBAR\.\w+\.(?:GPU|SYS)"), listing)


def matrix(resources: Resources) -> Counter[str]:
    return Counter({use.mnemonic: use.count for use in resources.matrix})


def listed_mfma(listing: str) -> Counter[str]:
    return Counter(re.findall(r"^\s+(v_mfma_\w+)", listing, flags=re.MULTILINE))


PREAMBLE_BYTES = 256
"""Kernels whose arguments are preloaded begin with code for firmware that does not, padded to a multiple of this."""


def listed_instructions(listing: str) -> int:
    """Return how many instructions the compiler's assembly has after the padded preamble."""
    body = listing.split("; @")[1].split(".Lfunc_end0")[0].split(".p2align\t8\n")[1]
    return len(re.findall(r"^\t[a-z]\w+(?: |$)", body, flags=re.MULTILINE))


def count_instructions(built: CodeObject) -> int:
    """Return how many instructions the object has after its preamble."""
    elf = read_elf(built.data, "x")
    code = elf.contents(next(symbol for symbol in elf.symbols if symbol.name == built.symbol))
    return sum(1 for _ in gfx9.instructions(code[PREAMBLE_BYTES:]))


def disassembler() -> Path:
    import triton

    return Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


INSTRUCTION = r"\*/\s+(?:@!?U?P\d\s+)?({})\b"


def listed_mma(cubin: bytes) -> Counter[str]:
    """Count matrix instructions in nvdisasm's listing."""
    return matrix_listed(listed(cubin))


def matrix_listed(listing: str) -> Counter[str]:
    return Counter(re.findall(INSTRUCTION.format(r"\w*MMA"), listing))


OTHER = """import triton
import triton.language as tl


@triton.jit
def other(a, b, out):
    rows = tl.arange(0, {rows})
    columns = tl.arange(0, 64)
    ks = tl.arange(0, 128)
    x = tl.load(a + rows[:, None] * 128 + ks[None, :])
    y = tl.load(b + columns[None, :] * 128 + ks[:, None])
    tl.store(out + rows[:, None] * 64 + columns[None, :], tl.dot(x, y))
"""


@pytest.mark.parametrize(
    ("arch", "rows", "operand", "out", "mnemonic"),
    [
        ("sm_90", 64, "i8", "i32", "IGMMA"),
        ("sm_90", 16, "i8", "i32", "IMMA"),
        ("sm_90", 64, "bf16", "fp32", "HGMMA"),
        ("sm_90", 16, "fp64", "fp64", "DMMA"),
        ("sm_90", 64, "fp8e5", "fp32", "QGMMA"),
        ("sm_89", 16, "fp8e4nv", "fp32", "QMMA"),
        ("sm_120", 64, "fp8e4nv", "fp32", "QMMA"),
        ("sm_100", 64, "fp8e4nv", "fp32", "UTCQMMA"),
    ],
)
def test_every_opcode_of_the_table_is_what_nvdisasm_calls_it(
    toolchain: Toolchains, arch: str, rows: int, operand: str, out: str, mnemonic: str
) -> None:
    from nkc.emit.source import Parameter, Source

    source = Source(
        language="triton",
        text=OTHER.format(rows=rows),
        symbol="other",
        digest="",
        closure=(),
        closure_digest="",
        parameters=tuple(
            Parameter(name=name, type=f"*{kind}", divisible_by=16)
            for name, kind in (("a", operand), ("b", operand), ("out", out))
        ),
        options=(("enable_fp_fusion", False), ("num_warps", 4)),
    )
    built = toolchain.compile(source, targets.get(arch))
    assert matrix(built.resources) == listed_mma(built.data)
    assert set(matrix(built.resources)) == {mnemonic}
    assert built.resources.isa == targets.get(arch).isa


def test_registers_and_stack_are_what_cuobjdump_says(toolchain: Toolchains, tmp_path: Path) -> None:
    tactic = next(tactic for tactic in TACTICS if tactic.target == "sm_90")
    built, _ = compiled(toolchain, tactic, production(tactic))
    place = tmp_path / "kernel.cubin"
    place.write_bytes(built.data)
    said = subprocess.run(
        [disassembler() / "cuobjdump", "-res-usage", place], capture_output=True, text=True, check=True
    ).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)", said)
    assert found is not None
    resources = inspect(built.data, name="x")
    assert (resources.registers, resources.scratch_bytes) == (int(found[1]), int(found[2]))
    assert resources.lds_fixed_bytes == int(found[3]) - 1024, "1 KB of every block belongs to the system"
