"""The committed comparisons inside a layer: of kernels in this tree, of the contracts they name, and indexed."""

from nkc.emit import measured
from nkc.ir import canonical, operations
from nkc.ir.reader import parse_document
from nkc.tactics.catalogue import tactics_of
from nkc.tactics.layer import FOLDER, read_all
from nkc.tactics.performance import read_performance_index

TACTICS = {tactic.name for name in operations.names() for tactic in tactics_of(name)}
COMPARISONS = read_all()


def test_every_comparison_is_of_a_tactic_that_exists_and_of_the_contract_it_names() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} <= TACTICS
    for each in COMPARISONS:
        assert canonical.contract_id(parse_document(each.contract, each.cell)) == each.request, each.cell


def test_every_comparison_of_today_s_kernel_is_indexed() -> None:
    """Where this fails: nkc evidence index."""
    index = read_performance_index()
    for each in COMPARISONS:
        indexed = index.tactics[each.ours.name].requests.get(each.request) if each.ours.name in index.tactics else None
        assert indexed == measured.code_digest(each, each.ours.name), each.cell
