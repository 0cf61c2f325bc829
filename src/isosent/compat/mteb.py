"""A model as an encoder of MTEB: ``mteb.evaluate(MTEBEncoder(model), tasks)``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _extras
from isosent.errors import InputError
from isosent.loading import check_model
from isosent.model import SentenceEncoder

DEFAULT_NAME = "isosent/model"


class MTEBEncoder:
    """Implements ``mteb.EncoderProtocol``, release 2.

    Parameters
    ----------
    model : SentenceEncoder
        The model.
    name : str, default "isosent/model"
        Name for MTEB, ``owner/name``. The fingerprint of the vector space is the revision, so MTEB never mixes up the
        results of two spaces.

    Raises
    ------
    InputError
        If the name does not have that form.
    InputTypeError
        If `model` is something else, such as a reference.
    MissingExtraError
        If mteb is not installed.

    Notes
    -----
    MTEB compares texts by the cosine of their vectors. If one of a pair has no vector, such as an empty text, MTEB's
    own cosine is 0.5; in isosent, and by `similarity_pairwise`, it is 0.
    """

    def __init__(self, model: SentenceEncoder, name: str = DEFAULT_NAME) -> None:
        check_model("MTEBEncoder", model)
        if not all(name.partition("/")):
            raise InputError(f"MTEBEncoder: name must have the form owner/name; got {name!r}.")
        self._mteb = _extras.require("mteb")
        self._model = model
        self._name = name

    @cached_property
    def mteb_model_meta(self) -> Any:
        """The metadata that MTEB writes with its results."""
        metadata = {
            "name": self._name,
            "revision": self._model.fingerprint,
            "embed_dim": self._model.dim,
            "similarity_fn_name": "cosine",
        }
        meta = self._mteb.models.ModelMeta
        return meta(**(meta.create_empty().model_dump() | metadata))

    def encode(
        self,
        inputs: Iterable[Mapping[str, Sequence[str]]],
        *,
        task_metadata: Any,
        hf_split: str,
        hf_subset: str,
        prompt_type: Any = None,
        **options: Any,
    ) -> NDArray[np.float32]:
        """Encode the texts of a task.

        Parameters
        ----------
        inputs : iterable of mappings
            Batches with the key ``text``.
        task_metadata, hf_split, hf_subset : object
            Without effect: every task is encoded in the same way.
        prompt_type : PromptType, optional
            Whether these are queries or documents. They get the encoder's prompts, and queries their own map.
        **options
            Without effect, such as `batch_size`: isosent makes its own batches.

        Returns
        -------
        ndarray of shape (n_texts, dim), float32
            One row per text.
        """
        texts: list[str] = []
        for batch in inputs:
            if "text" not in batch:
                raise InputError(f"MTEBEncoder: a batch must hold text; got {', '.join(batch) or 'nothing'}.")
            texts.extend(batch["text"])
        role = str(getattr(prompt_type, "value", prompt_type))
        roles = {"query": self._model.encode_query, "document": self._model.encode_document}
        return roles.get(role, self._model.encode)(texts)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Compare each vector with each other one.

        Parameters
        ----------
        embeddings1, embeddings2 : array-like of shape (n, dim) and (m, dim)
            Vectors.

        Returns
        -------
        tensor of shape (n, m)
            Cosines.
        """
        return self._mteb.similarity_functions.cos_sim(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Compare each vector with its counterpart.

        Parameters
        ----------
        embeddings1, embeddings2 : array-like of shape (n, dim)
            Vectors.

        Returns
        -------
        tensor of shape (n,)
            Cosines.
        """
        return self._mteb.similarity_functions.pairwise_cos_sim(embeddings1, embeddings2)
