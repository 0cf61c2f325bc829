"""The log-determinant of the flow against the Jacobian that torch differentiates."""

import numpy as np
import pytest

from isosent.transforms.flow import MIXINGS, GlowGraph

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("mixing", MIXINGS)
@pytest.mark.parametrize(("dim", "n_levels"), [(8, 2), (7, 2), (9, 3), (4, 1)])
def test_the_log_determinant_is_that_of_the_jacobian(mixing, dim, n_levels):
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(60, dim, generator=generator, dtype=torch.float64)
    graph = GlowGraph(rows, n_levels=n_levels, depth=3, width=5, mixing=mixing, seed=0)
    with torch.no_grad():
        for tensor in graph.parameters:
            tensor += 0.1 * torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
    flow = graph.state()
    for row in rows[:3]:
        jacobian = torch.autograd.functional.jacobian(lambda one: graph(one[None])[0], row)
        expected = torch.linalg.slogdet(jacobian).logabsdet.item()
        np.testing.assert_allclose([graph.log_determinant.item(), flow.log_determinant], expected, rtol=1e-12)
