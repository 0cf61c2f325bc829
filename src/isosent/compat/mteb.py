"""A model as an encoder of MTEB: ``mteb.evaluate(MTEBEncoder(model), tasks)``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _extras
from isosent.encoders.load import task_prompts
from isosent.errors import InputError, wrong_value
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
        results of two spaces. Prompts for tasks change it.

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
    If the folder of the model has prompts named after a task or a type of task, alone or followed by ``-query`` or
    ``-document``, they are added to the texts of that task, with the precedence of MTEB's own wrapper of
    sentence-transformers. Other tasks have the prompts of queries and documents.

    MTEB compares texts by the cosine of their vectors. If one of a pair has no vector, such as an empty text, MTEB's
    own cosine is 0.5; in isosent, and by `similarity_pairwise`, it is 0.
    """

    def __init__(self, model: SentenceEncoder, name: str = DEFAULT_NAME) -> None:
        check_model("MTEBEncoder", model)
        if not all(name.partition("/")):
            raise wrong_value("MTEBEncoder", "name", "have the form owner/name", repr(name))
        self._mteb = _extras.require("mteb")
        self._model = model
        self._name = name
        self._task_prompts = task_prompts(model.encoder)

    @cached_property
    def mteb_model_meta(self) -> Any:
        """The metadata that MTEB writes with its results."""
        revision = self._model.fingerprint
        if self._task_prompts:
            revision += json.dumps(self._task_prompts, sort_keys=True)
            revision = hashlib.sha256(revision.encode()).hexdigest()
        metadata = {
            "name": self._name,
            "revision": revision,
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
        task_metadata : TaskMetadata
            The task, whose name and type may have a prompt.
        hf_split, hf_subset : object
            Without effect.
        prompt_type : PromptType, optional
            Whether these are queries or documents. They get the encoder's prompts, unless there is one for the task,
            and queries their own map.
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
                raise InputError(f"a batch must hold text; got {', '.join(batch) or 'nothing'}.", where="MTEBEncoder")
            texts.extend(batch["text"])
        role = str(getattr(prompt_type, "value", prompt_type))
        prompt = self._prompt_of(task_metadata, role)
        match role:
            case "query":
                return self._model.encode(texts, role="query", prompt=prompt)
            case "document":
                return self._model.encode(texts, role="document", prompt=prompt)
            case _:
                return self._model.encode(texts, prompt=prompt)

    def _prompt_of(self, task_metadata: Any, role: str) -> str | None:
        """The prompt for a task; None leaves the role its own."""
        if not self._task_prompts or task_metadata is None:
            return None
        models, types = self._mteb.models.abs_encoder, self._mteb.types
        prompt_type = types.PromptType(role) if role in ("query", "document") else None
        name = models.get_prompt_name(self._task_prompts, task_metadata, prompt_type)
        return None if name is None else self._task_prompts[name]

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
