"""What a torch device computes is what the processor computes, within the same bounds.

The code is the same for every device of torch. Here it runs on torch's own processor device, and on a graphics processor
where there is one.
"""

from __future__ import annotations

import numpy as np
import pytest

import textpriv
from textpriv.errors import TextprivError
from textpriv.index import Index
from textpriv.index import neighbours as neighbourhoods
from textpriv.index import torch_distances as module
from textpriv.index.neighbours import exact_lists
from textpriv.index.rank_bands import NO_WORD
from textpriv.mechanisms import TEM, Madlib
from textpriv.metrics import CallableMetric, get_metric, pairwise_distances

torch = pytest.importorskip("torch")

PRODUCTS = ["euclidean", "angular", "unit_euclidean"]
METRICS = [*PRODUCTS, "manhattan", "chebyshev"]
HERE = "torch:cpu"


@pytest.fixture(params=[HERE, "cuda"])
def device(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch finds no CUDA device here")
    return request.param


@pytest.fixture(autouse=True)
def several_blocks(monkeypatch):
    """Blocks so small that every loop over them runs several times."""
    monkeypatch.setattr(module, "_ROWS", 64)
    monkeypatch.setattr(module, "_COLUMNS", 96)
    monkeypatch.setattr(neighbourhoods, "_DEVICE_ROWS", 128)


def points(kind, dtype):
    rng = np.random.default_rng(4)
    if kind == "clusters":
        centres = rng.normal(size=(9, 12))
        found = centres[rng.integers(9, size=700)] + rng.normal(size=(700, 12)) * 1e-3
    elif kind == "ties":
        # Shifted off the origin, where no direction is; equal rows overflow the candidates of a list.
        found = rng.integers(1, 4, size=(700, 4)).astype(float)
    else:
        found = rng.normal(size=(700, 12)) + 1e3
    return np.ascontiguousarray(found.astype(dtype))


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["clusters", "ties", "far away"])
def test_lists_of_a_device_have_the_distances_of_the_processor(device, kind, dtype, name):
    metric = get_metric(name)
    rows = metric.coordinates(points(kind, dtype))
    here = exact_lists(rows, metric, 20)
    there = exact_lists(rows, metric, 20, device=device)
    np.testing.assert_array_equal(there.distances, here.distances)
    own = pairwise_distances(metric.kind, rows, rows)
    np.fill_diagonal(own, 0.0)
    listed = np.take_along_axis(own, there.ids.astype(np.int64), axis=1)
    np.testing.assert_array_equal(listed.astype(dtype), there.distances)
    assert all(len(set(row)) == 20 for row in there.ids.tolist())
    bands = there.bands
    own[np.arange(700)[:, None], there.ids] = np.inf
    least = np.minimum.reduceat(own, bands.starts[:-1], axis=1)
    found = np.where(bands.nearest == NO_WORD, np.inf, bands.nearest * bands.step)
    assert (found <= least).all()
    np.testing.assert_array_equal(np.isinf(found), np.isinf(least))
    if kind == "clusters":
        some = np.isfinite(least)
        assert np.median(least[some] - found[some]) < bands.step


def test_candidates_of_a_device_leave_out_nothing_within_the_bound(device):
    """Products that float32 cannot order: the slack, not the order of the products, decides who is ranked."""
    rng = np.random.default_rng(1)
    rows = (np.ones(30) + 1e-5 * rng.normal(size=(900, 30))).astype(np.float64)
    here = exact_lists(rows, get_metric("euclidean"), 15)
    there = exact_lists(rows, get_metric("euclidean"), 15, device=device)
    np.testing.assert_array_equal(there.distances, here.distances)


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_full_rows_of_a_device_are_those_of_the_processor_within_the_bound(
    device, index_of, dtype, name
):
    index = index_of(points("far away", dtype), dtype=dtype, metric=name, k=8)
    words = np.array([0, 5, 699])
    here = index.distances_of(words)
    np.testing.assert_allclose(
        index.distances_of(words, device=device), here, rtol=0, atol=2 * index.tau
    )


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("options", [{}, {"prior": "uniform"}, {"gamma": 1.0}])
def test_a_certificate_of_a_device_is_that_of_the_processor(device, index_of, name, options):
    index = index_of(points("clusters", np.float64)[:400], metric=name, k=30)
    mechanism = TEM(index, epsilon=3.0, **options)
    here, there = textpriv.certify(mechanism), textpriv.certify(mechanism, device=device)
    assert there.rho == pytest.approx(here.rho, rel=1e-10)
    assert there.rho_with_rounding == pytest.approx(here.rho_with_rounding, rel=1e-10)
    assert set(there.worst_pair) == set(here.worst_pair)
    assert (there.holds, there.exact, there.pairs) == (True, True, here.pairs)


def test_a_certificate_of_a_device_covers_duplicates_and_near_duplicates(device, index_of):
    rows = points("clusters", np.float64)[:300]
    rows[10] = rows[20]
    rows[30] = rows[40] + 1e-7
    index = index_of(rows, k=12)
    mechanism = TEM(index, epsilon=3.0)
    there = textpriv.certify(mechanism, device=device)
    assert there.rho == pytest.approx(textpriv.certify(mechanism).rho, rel=1e-9)
    assert there.pairs == 299 * 298 // 2


def test_an_index_is_built_on_a_device(device, vocabulary_of):
    vocabulary = vocabulary_of(points("clusters", np.float64))
    here = Index.build(vocabulary, k=16, hnsw=False)
    there = Index.build(vocabulary, k=16, hnsw=False, device=device)
    np.testing.assert_array_equal(there.neighbours.distances, here.neighbours.distances)
    assert (there.tau, there.reference_distance) == (here.tau, here.reference_distance)
    np.testing.assert_array_equal(there.representatives, here.representatives)


def test_a_mechanism_without_a_closed_law_is_certified_on_the_processor(device, index_of):
    index = index_of(points("clusters", np.float64)[:60] * 9, hnsw=True)
    certificate = textpriv.certify(Madlib(index, epsilon=5.0), device=device)
    assert "Monte Carlo" in certificate.method


def test_products_are_taken_in_full_precision_and_the_setting_is_left_as_it_was():
    torch.set_float32_matmul_precision("medium")
    try:
        with module.full_precision(torch.device("cpu")):
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_a_device_that_rounds_the_factors_of_a_product_is_refused(monkeypatch):
    exact = torch.Tensor.__matmul__

    def rounded(left, right):
        return exact(left.to(torch.bfloat16).to(torch.float32), right)

    monkeypatch.setattr(torch.Tensor, "__matmul__", rounded)
    with (
        pytest.raises(TextprivError, match="rounds the factors"),
        module.full_precision(torch.device("cpu")),
    ):
        pass


@pytest.mark.parametrize(
    ("name", "said"), [("cuda:99", "CUDA devices"), ("abacus", "unknown"), ("meta", "double")]
)
def test_a_device_that_cannot_be_used_is_named_before_any_work(vocabulary_of, name, said):
    with pytest.raises(TextprivError, match=said):
        Index.build(vocabulary_of(np.eye(3)), device=name)


def test_a_metric_of_the_user_has_no_rows_on_a_device(index_of):
    metric = CallableMetric(lambda a, b: np.abs(a[:, None] - b[None]).sum(axis=2), name="taxicab")
    index = index_of(np.eye(4), metric=metric)
    with pytest.raises(TextprivError, match="knows no device"):
        index.distances_of(np.array([0]), device=HERE)


def test_the_commands_name_a_device_that_is_not_there(tmp_path, index_of):
    from typer.testing import CliRunner

    from textpriv.cli.app import app

    saved = tmp_path / "saved.idx"
    index_of(np.eye(5)).save(saved)
    answer = CliRunner().invoke(
        app, ["certify", str(saved), "--epsilon", "2", "--device", "cuda:99"]
    )
    assert answer.exit_code != 0
    assert "cuda:99" in answer.output
