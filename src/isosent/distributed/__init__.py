"""Encoding by many machines: shards made by a Ray cluster, and batches in the jobs of other engines."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from isosent.errors import InputError
from isosent.io.texts import is_missing
from isosent.loading import load
from isosent.model import Role, SentenceEncoder


class Encode:
    """A function of batches for ``map_batches`` of Ray Data, which adds the vectors of a column of texts.

    Every worker loads the model once. Ray Data may give a batch twice, or lose one with a node; for results where every
    row is there exactly once, use ``isosent encode --on ray``.

    Parameters
    ----------
    model : str, default "wordllama"
        Reference of the model, as for `isosent.load`; the files must be reachable from all machines.
    column : str, default "text"
        Column with the texts; null is an empty text.
    output : str, default "vector"
        Column for the vectors, (n_texts, dim), float32.
    role : {"text", "query", "document"}, default "text"
        What the texts are encoded as.
    options : mapping of str to object, optional
        Options of the model.

    Raises
    ------
    InputError
        If there is no such column.

    Examples
    --------
    >>> import numpy as np
    >>> encode = Encode("wordllama")
    >>> encode({"text": np.array(["A man is riding a horse."], object)})["vector"].shape
    (1, 256)
    """

    def __init__(
        self,
        model: str = "wordllama",
        column: str = "text",
        output: str = "vector",
        *,
        role: Role = "text",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._reference, self._options = model, dict(options or {})
        self._column, self._output, self._role = column, output, role

    def __call__(self, batch: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the batch with the vectors of its texts."""
        if self._column not in batch:
            raise InputError(f"the batch has no column {self._column}; it has: {', '.join(batch)}.")
        texts = ["" if is_missing(value) else value for value in batch[self._column]]
        return {**batch, self._output: self._model.encode(texts, role=self._role)}

    @cached_property
    def _model(self) -> SentenceEncoder:
        return load(self._reference, **self._options)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_model"}  # each worker loads its own
