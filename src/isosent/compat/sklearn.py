"""A model as the first step of a scikit-learn pipeline, which is also what BERTopic takes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from isosent import _check
from isosent.encoders.reference import DEFAULT_REFERENCE
from isosent.loading import load
from isosent.model import SentenceEncoder
from isosent.storage import Storage
from isosent.transforms.base import Auto, Transform


class SentenceVectorizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Turns texts into vectors: a scikit-learn transformer, fitted as `SentenceEncoder.fitted` is.

    Parameters
    ----------
    model : SentenceEncoder or str or path-like, default "wordllama"
        The model, or a reference, which each fit loads.
    vector_transform : Transform, str or None, optional
        What is fitted on the texts, as for `SentenceEncoder.fitted`: a name, an object, "auto", or None for the vectors
        of the model.
    n_components : int, float or str, optional
        Dimensions to keep, for a transform that is named.

    Attributes
    ----------
    model_ : SentenceEncoder
        The fitted model, which can be saved.

    Examples
    --------
    >>> import isosent
    >>> texts = isosent.demo_texts()
    >>> SentenceVectorizer(isosent.load("wordllama"), "whitening", n_components=32).fit_transform(texts).shape
    (480, 32)
    """

    def __init__(
        self,
        model: SentenceEncoder | str | os.PathLike[str] = DEFAULT_REFERENCE,
        vector_transform: Transform | Auto | str | None = None,
        n_components: int | float | str | None = None,
    ) -> None:
        self.model = model
        self.vector_transform = vector_transform
        self.n_components = n_components

    def fit(self, X: Sequence[str], y: object = None) -> Self:
        """Load the model, and fit it on texts.

        Parameters
        ----------
        X : sequence of str
            Texts: a list, an array, or a pandas or polars Series.
        y : object, optional
            Ignored; no labels are needed.

        Returns
        -------
        SentenceVectorizer
            This object.

        Raises
        ------
        InputError
            If the model cannot be loaded, or the transform cannot be fitted on these texts.
        """
        texts = _check.some_texts(type(self).__name__, X)
        model = self.model if isinstance(self.model, SentenceEncoder) else load(self.model)
        settings = None if self.n_components is None else {"n_components": self.n_components}
        self.model_ = model.fitted(texts, self.vector_transform, settings=settings)
        return self

    def transform(self, X: Sequence[str]) -> NDArray[np.float32]:
        """Encode texts.

        Parameters
        ----------
        X : sequence of str
            Texts.

        Returns
        -------
        ndarray of shape (n_texts, n_components), float32
            A vector for each text; that of a text without a token that the model knows is zero.

        Raises
        ------
        InputTypeError
            If something in the texts is not a string.
        NotFittedError
            If nothing was fitted.
        """
        check_is_fitted(self)
        return self.model_.encode(_check.text_list(type(self).__name__, X))  # one text would have no axis of rows

    @property
    def _n_features_out(self) -> int:
        return self.model_.dim

    def __sklearn_tags__(self) -> Tags:
        """Declare to scikit-learn that it takes texts, and gives float32."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        tags.transformer_tags.preserves_dtype = [Storage.float32]
        return tags
