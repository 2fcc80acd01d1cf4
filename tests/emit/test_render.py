"""Rendered dense kernels, as text: what a contract's numbers must have become."""

import ast
import re

import msgspec
import pytest

from nkc.emit.render import render
from nkc.emit.source import Source
from nkc.ir.contract import Bounded, Contract, DType
from nkc.ir.frozen import FrozenMap
from nkc.tactics import Policy, Tactic, select, tactics_of
from nkc.tactics.tactic import Lowered

from ..fixtures import contracts

TACTICS = tactics_of("dense")
TRITON = [tactic for tactic in TACTICS if tactic.kernel.language == "triton"]
CUDA = [tactic for tactic in TACTICS if tactic.kernel.language == "cuda"]
SCALED = [tactic for tactic in TACTICS if tactic.kernel.template == "triton/dense_fp8_block.py.j2"]
SCALED_NAMES = [tactic.name for tactic in SCALED]
WHOLE = next(tactic for tactic in SCALED if tactic.schedule.split_k == 1)


def changed(contract: Contract, **shape: int | Bounded) -> Contract:
    return msgspec.structs.replace(contract, shape=FrozenMap({**contract.shape, **shape}))


def bounded_proof(tactic: Tactic) -> Contract:
    return next(contract for contract in tactic.proofs(tactic) if isinstance(contract.shape["m"], Bounded))


def rendered(tactic: Tactic, contract: Contract) -> Source:
    return render(Lowered(contract=tactic.lower(contract, tactic), tactic=tactic))


@pytest.mark.parametrize("tactic", TRITON, ids=lambda tactic: tactic.name)
def test_every_proof_renders_to_a_kernel_without_decisions_left(tactic: Tactic) -> None:
    for contract in tactic.proofs(tactic):
        source = rendered(tactic, contract)
        module = ast.parse(source.text)
        (function,) = [node for node in module.body if isinstance(node, ast.FunctionDef)]
        assert function.name == source.symbol
        assert [argument.arg for argument in function.args.args] == [item.name for item in source.parameters]
        assert not re.search(r"constexpr|\{\{|\{%|allow_tf32", source.text)
        chosen = {"maximum", "where"} if contract.dtypes["out"] is DType.FP8_E4M3 else set()  # of a scale
        assert set(re.findall(r"maximum|where", source.text)) <= chosen
        assert dict(source.options)["enable_fp_fusion"] is False
        assert dict(source.options)["num_warps"] == tactic.schedule.waves


@pytest.mark.parametrize("tactic", CUDA, ids=lambda tactic: tactic.name)
def test_every_proof_of_a_kernel_in_cxx_declares_what_a_launch_passes(tactic: Tactic) -> None:
    for contract in tactic.proofs(tactic):
        source = rendered(tactic, contract)
        declared = re.search(rf"{source.symbol}\(([^)]*)\)", source.text)
        assert declared is not None
        names = [re.split(r"[ *]+", parameter.strip())[-1] for parameter in declared.group(1).split(",")]
        assert names == [item.name for item in source.parameters]
        assert f"__launch_bounds__({32 * (tactic.schedule.waves or 0)}" in source.text
        assert not re.search(r"<[$%#]|[$%#]>|\bif constexpr\b|\btemplate\b", source.text)
        assert source.language == "cuda"
        assert dict(source.options)["fmad"] is False


@pytest.mark.parametrize("tactic", SCALED, ids=SCALED_NAMES)
def test_promotion_is_one_fma_a_part_and_a_block_with_the_product_of_the_scales(tactic: Tactic) -> None:
    source = rendered(tactic, tactic.proofs(tactic)[1])
    tile = tactic.schedule.tile
    assert tile is not None
    promotions = re.findall(r"sum_(\d) = tl\.fma\(block_sum, \(a_scale \* b_scale\)\[:, None\], sum_\1\)", source.text)
    assert len(promotions) == max(tile[1] // 128, 1) * tile[2] // 128
    loop = source.text.split("for step in")[1].split("\n\n")[0]
    assert source.text.count("tl.dot(") == loop.count("tl.fma(") == len(promotions)
    quantises = 4 if "_codes" in tactic.name else 0  # a scale and a quotient, two each
    assert source.text.count("tl.fma(") == len(promotions) + quantises
    assert "+=" not in loop


@pytest.mark.parametrize("n", [576, 2112, 448])
@pytest.mark.parametrize("tactic", SCALED, ids=SCALED_NAMES)
def test_a_column_has_the_scale_row_of_its_block(tactic: Tactic, n: int) -> None:
    """F01: column j has row j // 128, whatever N divided by the number of rows is."""
    source = rendered(tactic, changed(tactic.proofs(tactic)[1], n=n))
    tile = tactic.schedule.tile
    assert tile is not None
    rows = re.findall(r"b_scale_row_\d = (.*)", source.text)
    assert len(rows) == max(tile[1] // 128, 1)
    for row in rows:
        for column in range(-(-n // tile[1])):
            said = eval(row.replace("tl.minimum", "min"), {"min": min}, {"tile_column": column})
            first = column * tile[1] + 128 * rows.index(row)
            assert said == min(first // 128, -(-n // 128) - 1)


@pytest.mark.parametrize("arch", ["gfx950", "sm_90"])
def test_F08_a_pitch_beyond_32_bits_is_multiplied_in_64_or_refused(arch: str) -> None:
    """31 steps of 2^27 scales pass 2^31, though the 32 scales themselves fit anywhere."""
    pitch = 1 << 27
    scales = {"$.scales.a.layout": "m_major", "$.scales.a.leading_dim": pitch}
    asked = contracts.contract({"$.target.arch": arch, "$.properties.constant": ["b", "b_scales"], **scales})
    selection = select(asked, Policy(allow_experimental=True))
    families = {found.tactic.family for found in selection.eligible}
    assert families == ({"sm_90.dense.fp8_gemv"} if arch == "sm_90" else set())
    for found in selection.eligible:
        multiplied = re.findall(rf"(\S+) \* {pitch}\b", rendered(found.tactic, asked).text)
        assert multiplied
        assert all(product.endswith("(u64)block") for product in multiplied)
    refused = [
        (reason.field, reason.wanted, reason.actual)
        for found in selection.candidates
        if found.tactic.target == arch
        for reason in found.reasons
        if reason.predicate == "scale_offsets_fit_int32"
    ]
    largest, unit = ((31 * pitch + 1) * 4, "bytes") if arch == "gfx950" else (31 * pitch, "elements")
    assert set(refused) == {
        (
            "$.scales.a.leading_dim",
            f"offsets into the scales of `a` of at most {(1 << 31) - 1} {unit}",
            f"{largest} with 32 groups of {pitch}",
        )
    }


def test_scales_of_activations_lie_where_the_contract_says() -> None:
    tactic = WHOLE
    exact, bounded = tactic.proofs(tactic)[0], bounded_proof(tactic)
    row_major = rendered(tactic, changed(exact, k=1024)).text
    assert "a_scales + a_rows * 8" in row_major
    assert "tl.load(a_scale_lane + kb * 1)" in row_major
    m_major = rendered(tactic, bounded).text
    assert "a_scales + a_rows * 1" in m_major
    assert "tl.load(a_scale_lane + kb * ((m + 3) // 4 * 4))" in m_major


def test_a_bounded_dim_is_an_argument_and_a_mask() -> None:
    tactic = WHOLE
    source = rendered(tactic, bounded_proof(tactic))
    assert (source.parameters[-1].name, source.parameters[-1].type) == ("m", "i32")
    assert "a_rows = tl.minimum(rows, m - 1)" in source.text
    assert "rows[:, None] < m" in source.text
    assert re.search(r"if tile_row \* \d+ >= m:\n        return\n", source.text)


@pytest.mark.parametrize(("out", "store"), [(DType.BF16, "(acc).to(tl.bfloat16)"), (DType.FP32, "(acc)")])
def test_the_result_is_rounded_once_at_the_store(out: DType, store: str) -> None:
    tactic = WHOLE
    contract = tactic.proofs(tactic)[0]
    contract = msgspec.structs.replace(contract, dtypes=FrozenMap({**contract.dtypes, "out": out}))
    source = rendered(tactic, contract)
    assert f"    acc = sum_0\n    result = {store}\n" in source.text
    assert source.text.count(".to(tl.bfloat16)") == (out is DType.BF16)
    assert "mask=" not in source.text


class _Language:
    """The part of `tl` that the walk over tiles uses, on plain numbers."""

    minimum = staticmethod(min)

    def __init__(self, program: int) -> None:
        self.program = program

    def program_id(self, axis: int) -> int:
        assert axis == 0
        return self.program


def order(text: str, programs: int) -> list[tuple[int, int, int]]:
    """Return the tile's row, its column, and the piece of k of every workgroup, by running the kernel's own lines."""
    body = text.split("):\n", 1)[1].split("    # Row and column tails")[0]
    code = compile("".join(f"{line[4:]}\n" for line in body.splitlines()), "order", "exec")
    tiles = []
    for program in range(programs):
        names: dict[str, object] = {"tl": _Language(program), "piece": 0}
        exec(code, names)
        tiles.append((names["tile_row"], names["tile_column"], names["piece"]))
    return tiles


@pytest.mark.parametrize("tactic", TRITON, ids=lambda tactic: tactic.name)
@pytest.mark.parametrize(("m", "n"), [(1, 576), (100, 2112), (1000, 448), (3000, 1280)])
def test_every_tile_and_piece_has_exactly_one_workgroup(tactic: Tactic, m: int, n: int) -> None:
    contract = tactic.lower(changed(tactic.proofs(tactic)[0], m=m, n=n), tactic)
    text = render(Lowered(contract=contract, tactic=tactic)).text
    assert contract.launch is not None
    assert contract.launch.grid is not None
    tile, split = tactic.schedule.tile, tactic.schedule.split_k
    assert tile is not None
    assert split is not None
    rows, columns = range(-(-m // tile[0])), range(-(-n // tile[1]))
    wanted = {(row, column, piece) for row in rows for column in columns for piece in range(split)}
    tiles = order(text, contract.launch.grid[0])
    assert len(tiles) == len(wanted)
    assert set(tiles) == wanted
