r"""Ridge regression of vectors on the tokens of texts, near a prior, in closed form.

The vector of a text is the mean of the rows of its tokens, ``A @ rows`` with the sparse ``A`` of `TokenShares`. Rows
near a prior minimize :math:`\|Y - A E\|^2 + \lambda \|E - E_0\|^2`, so :math:`E = E_0 + X` with
:math:`(A^T A + \lambda I) X = A^T (Y - A E_0)`, which `solve` computes by conjugate gradients. Texts are read in
parts of a fixed size and columns are solved in blocks of a fixed size: bits do not depend on files or threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from isosent.numeric.threads import map_blocks

PART_TEXTS = 8192
_SOLVED_TEXTS = 1 << 16  # in a part: fewer, and the rows of the tokens are added up more often
_BLOCK_COLUMNS = 64
_MOST_STEPS = 300


class TokenShares:
    """The matrix A, (n_texts, vocab_size): which share of the tokens of a text is which token; 4 bytes a token."""

    def __init__(self, ids: NDArray[np.int32], offsets: NDArray[np.int64], vocab_size: int) -> None:
        self.ids, self.offsets, self.vocab_size = ids, offsets, vocab_size

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def bounds(self, part_texts: int | None = None) -> Iterator[tuple[int, int]]:
        """First text of each part, and the one after its last."""
        size = part_texts or PART_TEXTS
        return ((start, min(start + size, len(self))) for start in range(0, len(self), size))

    def counts_by_part(
        self, part_texts: int | None = None, dtype: type[np.floating] = np.float64
    ) -> Iterator[tuple[slice, csr_array, NDArray[np.float64]]]:
        """Yield which texts a part has, the counts of its tokens, and the inverse length of each text, (n_texts, 1)."""
        bounds = list(self.bounds(part_texts))
        ones = np.ones(max((int(self.offsets[stop] - self.offsets[start]) for start, stop in bounds), default=0), dtype)
        for start, stop in bounds:
            offsets = self.offsets[start : stop + 1]
            ids = self.ids[offsets[0] : offsets[-1]]
            counts = csr_array(
                (ones[: len(ids)], ids, (offsets - offsets[0]).astype(np.int32)),
                shape=(stop - start, self.vocab_size),
            )
            yield slice(start, stop), counts, 1 / np.maximum(np.diff(offsets), 1)[:, None]

    def take(self, texts: NDArray[np.intp]) -> TokenShares:
        """The same for some of the texts."""
        lengths = np.diff(self.offsets)[texts]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        places = np.repeat(self.offsets[:-1][texts] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return TokenShares(self.ids[places], offsets, self.vocab_size)

    def vectors(self, rows: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
        """Yield the vectors of the texts of each part, A E."""
        return ((counts @ rows) * inverse for _, counts, inverse in self.counts_by_part())

    def transposed(self, vectors: Iterable[NDArray[np.floating]]) -> NDArray[np.float64]:
        """The product A'Y; `vectors` yields the rows of Y of each part."""
        products = (
            counts.T @ (part * inverse)
            for (_, counts, inverse), part in zip(self.counts_by_part(), vectors, strict=True)
        )
        product: NDArray[np.float64] = next(products)
        for part in products:
            product += part
        return product

    def squares(self) -> NDArray[np.float64]:
        """The diagonal of A'A."""
        total = np.zeros(self.vocab_size)
        for _, counts, inverse in self.counts_by_part():
            shares = csr_array(counts, copy=True)
            shares.sum_duplicates()  # a token that a text has twice
            total += (shares.multiply(inverse) ** 2).sum(axis=0)
        return total


def solve(
    shares: TokenShares, right: NDArray[np.float64], penalty: float, *, tolerance: float = 1e-4
) -> NDArray[np.float64]:
    """Solve ``(A'A + penalty) X = right``, of shape (vocab_size, dim), each column until its residual is this small.

    Computed in float32, which takes half of the time.
    """
    parts = [
        (counts, counts.T, (inverse**2).astype(np.float32))
        for _, counts, inverse in shares.counts_by_part(_SOLVED_TEXTS, np.float32)
    ]
    diagonal = (shares.squares() + penalty).astype(np.float32)[:, None]

    def image(direction: NDArray[np.float32]) -> NDArray[np.float32]:
        product = np.float32(penalty) * direction
        for counts, transposed, squares in parts:
            vectors = counts @ direction
            vectors *= squares
            product += transposed @ vectors
        return product

    blocks = map_blocks(
        lambda start: _solve_block(image, right[:, start : start + _BLOCK_COLUMNS], diagonal, tolerance),
        right.shape[1],
        _BLOCK_COLUMNS,
    )
    return np.concatenate(list(blocks), axis=1, dtype=np.float64)


def _solve_block(
    image_of: Callable[[NDArray[np.float32]], NDArray[np.float32]],
    right: NDArray[np.float64],
    diagonal: NDArray[np.float32],
    tolerance: float,
) -> NDArray[np.float32]:
    """Conjugate gradients of some columns, each with its own step, preconditioned by the diagonal."""
    residual = np.ascontiguousarray(right, dtype=np.float32)
    solution, scaled = np.zeros_like(residual), residual / diagonal
    limit = tolerance**2 * _columnwise(residual, residual)
    direction, product = scaled.copy(), _columnwise(residual, scaled)
    for _ in range(_MOST_STEPS):
        if (_columnwise(residual, residual) <= limit).all():
            break
        image = image_of(direction)
        step = _ratio(product, _columnwise(direction, image))
        solution += np.multiply(direction, step, out=scaled)  # memory is what takes the time
        image *= step
        residual -= image
        np.divide(residual, diagonal, out=scaled)
        before, product = product, _columnwise(residual, scaled)
        direction *= _ratio(product, before)
        direction += scaled
    return solution


def _columnwise(first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.einsum("ij,ij->j", first, second)


def _ratio(above: NDArray[np.float32], below: NDArray[np.float32]) -> NDArray[np.float32]:
    """Quotient, 0 where a column is solved exactly."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)
