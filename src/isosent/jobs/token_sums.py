"""Sums of the vectors that tokens have in texts, taken from the hidden states while the texts are encoded.

`reading_tokens` encodes texts as queries and adds up, in a `TokenSums`, what it sees of their tokens on the way. A
worker writes the sums of a shard into a file beside its vectors. Memory is that of the tokens that occur.
"""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from isosent.encoders.base import WINDOW, collecting_stats
from isosent.encoders.load import encoder_for
from isosent.encoders.transformer import TransformerEncoder
from isosent.io import remote
from isosent.io.atomic import replacing
from isosent.io.notes import SUMS_ENDING
from isosent.io.shards import ShardIndex
from isosent.io.tensors import read_tensors, tensors_bytes
from isosent.jobs.encode import BlockEncoder
from isosent.model import SentenceEncoder
from isosent.numeric.similarity import unit_rows
from isosent.pages.progress import Progress, part_of


class TokenSums:
    """How often each token was seen, and the sum of its unit vectors, for the tokens that occur."""

    def __init__(self, dim: int) -> None:
        self._places = np.zeros(0, np.intp)  # of each id, from 1 on; 0 if it was not seen
        self._ids, self._counts, self._sums = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, dim))
        self._n_seen = 0

    def see(self, ids: NDArray[np.int64], units: NDArray[np.float32]) -> None:
        """Add the unit vectors of tokens, (n_tokens, dim)."""
        if len(ids):
            order = np.argsort(ids, kind="stable")
            distinct, starts, counts = np.unique(ids[order], return_index=True, return_counts=True)
            self.add(distinct, counts, np.add.reduceat(units[order], starts, axis=0, dtype=np.float64))

    def add(self, ids: NDArray[np.int64], counts: NDArray[np.int64], sums: NDArray[np.floating]) -> None:
        """Add sums of distinct tokens."""
        self._places = _with_room(self._places, int(ids.max(initial=-1)) + 1)
        new = ids[self._places[ids] == 0]
        self._places[new] = np.arange(self._n_seen, self._n_seen + len(new)) + 1
        self._n_seen += len(new)
        self._ids, self._counts, self._sums = (
            _with_room(array, self._n_seen) for array in (self._ids, self._counts, self._sums)
        )
        places = self._places[ids] - 1
        self._ids[places] = ids
        self._counts[places] += counts
        self._sums[places] += sums

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What `add` takes: ids, counts, and sums of shape (n_tokens, dim), float32."""
        ids, counts, sums = (array[: self._n_seen] for array in (self._ids, self._counts, self._sums))
        return {"ids": ids, "counts": counts, "sums": sums.astype(np.float32)}

    def write(self, path: Path) -> None:
        """Write `arrays` to a file."""
        with replacing(path) as temporary:
            temporary.write_bytes(tensors_bytes(self.arrays(), {}))


def token_sums_in(folder: str, index: ShardIndex, dim: int) -> TokenSums:
    """The sums over all shards of a complete folder, in their order."""
    total = TokenSums(dim)
    with closing(remote.Staged()) as staged:
        for number in range(index.n_shards):
            path = staged.path_of(remote.path_in(folder, index.shard_name(number) + SUMS_ENDING))
            total.add(**read_tensors(Path(path), ())[0])
    return total


def token_encoder(model: SentenceEncoder) -> TransformerEncoder | None:
    """The encoder of queries, if its tokens have vectors like those of texts."""
    encoder = encoder_for(model.encoder, "query")
    return encoder if isinstance(encoder, TransformerEncoder) and encoder.pools_to_tokens else None


def reading_tokens(model: SentenceEncoder, is_read: NDArray[np.bool_], sums: TokenSums) -> BlockEncoder:
    """How the texts are encoded as queries, in their order; tokens of those that are read are added to the sums."""
    encoder, flags = cast("TransformerEncoder", token_encoder(model)), iter(is_read)

    def encode(texts: list[str], *, group: Any = None, progress: Progress | None = None) -> NDArray[np.float32]:
        block = np.fromiter(islice(flags, len(texts)), bool, len(texts))

        def see(rows: NDArray[np.intp], ids: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
            read = block[rows]
            sums.see(ids[read], unit_rows(model.transform(vectors[read], queries=True)))

        encoded = encoder.encode_with_tokens(texts, see, progress=progress)
        return model.transform(encoded, queries=True, group=group)

    return encode


def read_again(model: SentenceEncoder, texts: list[str], progress: Progress) -> TokenSums:
    """Read texts whose vectors are known, or come from a backend that gives no hidden states."""
    sums = TokenSums(model.dim)
    encode = reading_tokens(model, np.ones(len(texts), bool), sums)
    with collecting_stats():  # which texts are cut was said when they were encoded
        for start in range(0, len(texts), WINDOW):
            encode(texts[start : start + WINDOW], progress=part_of(progress, start, len(texts)))
    return sums


def _with_room(array: NDArray[Any], n_rows: int) -> NDArray[Any]:
    """The array, with zeros in twice as many rows where it has fewer."""
    if n_rows <= len(array):
        return array
    larger = np.zeros((2 * n_rows, *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger
