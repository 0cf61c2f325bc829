"""How a model is fitted: what `SentenceEncoder` is able to do with a transform.

Each method gives a new model. `fitted` encodes texts, `fitted_on_vectors` and `fitted_on_moments` need none, and all
three end in `fitted_on_statistics`, which erases labels and fits; `fitted_on_pairs` takes matching texts or vectors.
For "auto" they ask `transforms.auto`, which compares candidates on the texts.
"""

from __future__ import annotations

import copy
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.encoders.base import Encoder
from isosent.encoders.load import encoder_for
from isosent.errors import InputError, IsosentWarning
from isosent.numeric.moments import Moments
from isosent.pages.progress import Progress, encoding_bar, part_of
from isosent.persistence import FitRecord
from isosent.postprocessing import NO_POSTPROCESSING, Postprocessing
from isosent.role import Role
from isosent.transforms.auto import AutoChoice, choose_from_texts, choose_without_texts
from isosent.transforms.base import (
    AUTO,
    Auto,
    FitCallback,
    LinearTransform,
    Transform,
    needs_vectors,
    resolve_transform,
    resolved_settings,
    transform_name,
)
from isosent.transforms.labels import Attribute, Labels
from isosent.transforms.maps import check_roles
from isosent.transforms.pairs import MatchingPairs, choose_from_pairs
from isosent.transforms.statistics import LabeledStatistics, Statistics, rows_with_vector

PairGroups = tuple[Sequence[Any], Sequence[Any]]  # the group of each first and of each second text


class Fittable(ABC):
    """An encoder and the steps that follow it, which can be fitted."""

    _encoder: Encoder
    _postprocessing: Postprocessing
    _fits: tuple[FitRecord, ...]

    @property
    @abstractmethod
    def dim(self) -> int:
        """Dimensions of its vectors."""

    @abstractmethod
    def _with(self, postprocessing: Postprocessing, fit: FitRecord, encoder: Encoder | None = None) -> Self:
        """The model after one more fit, perhaps of its encoder."""

    def fitted(
        self,
        texts: Sequence[str],
        transform: Transform | Auto | str | None = AUTO,
        *,
        settings: Mapping[str, Any] | None = None,
        erase: Labels | Mapping[str, Labels] | None = None,
        queries: Sequence[str] | None = None,
        encoded: NDArray[np.float32] | None = None,
        source: str = "texts in memory",
        progress: Progress | None = None,
        report: FitCallback | None = None,
    ) -> Self:
        """Return this model with a transform fitted on texts.

        An encoder that learns from texts, such as GEM, is fitted on them first.

        Parameters
        ----------
        texts : sequence of str
            Texts like those to be compared later; the documents if there are queries.
        transform : Transform, str or None, default "auto"
            An unfitted transform such as ``Whitening(n_components=128)``, which is copied; names as on the command
            line, such as ``"whitening"`` or ``"mean_centering,whitening"``; ``"auto"``, which chooses one or none by
            the texts; or ``"none"`` or None, which fits the encoder alone.
        settings : mapping of str to object, optional
            Settings of a transform that is named, such as ``{"n_components": 128}``. "auto" also has a ``purpose``,
            "pairs", "topics" or "search": what the vectors are for, which it then judges alone. Without one, it does
            nothing that harms either pairs or topics.
        erase : sequence or mapping of str to sequence, optional
            A label of each text, or ``{name: labels}``: values, such as languages, or numbers. Vectors no longer tell
            it, and the transform is fitted on what is left. Texts without a label (None, NaN, empty) are left out.
        queries : sequence of str, optional
            Queries like those to be used later. Their mean is fitted separately: `encode_query` shifts it onto the
            mean of the documents. The map is fitted on the scatter of both, each about its own mean.
        encoded : ndarray of shape (n_texts, encoder.dim), float32, optional
            What ``model.encoder.encode(texts)`` returned (that of ``encoder.for_documents()`` with queries), to save
            encoding the texts again.
        source : str, optional
            Where the texts come from, for the record.
        progress : callable, optional
            Called as ``progress(done, total)``, counted in texts.
        report : callable, optional
            Called with the `FitProgress` of a flow.

        Returns
        -------
        SentenceEncoder
            A new model. A linear transform is folded into the map of this one.

        Raises
        ------
        InputError
            If no text has a vector, the transform or the labels cannot be used, or queries come without a transform.

        Examples
        --------
        >>> import isosent
        >>> model = isosent.load("wordllama").fitted(isosent.demo_texts(), "whitening", settings={"n_components": 64})
        >>> model.encode(["A man is riding a horse."]).shape
        (1, 64)
        """
        texts = _check.some_texts("fit", texts)
        queries = None if queries is None else _check.some_texts("fit", queries)
        chosen = resolve_transform(transform, settings, dim=self.dim)
        if chosen is None and queries is not None:
            raise InputError("fit: queries need a transform, and there is none. Leave them out.")
        attribute = None
        if erase is not None:
            attribute = Attribute.of(erase, len(texts))
            self._postprocessing.check_fit(attribute.erasure())
        if chosen is not None:
            self._postprocessing.check_fit(chosen, queries=queries is not None)
        if self._encoder.needs_corpus:
            model = self._with_encoder_fitted(texts, source, progress)
            return model.fitted(
                texts, chosen, erase=erase, queries=queries, source=source, progress=progress, report=report
            )
        if chosen is None and erase is None:
            return self
        encoder = self._encoder if queries is None else self._encoder.for_documents()
        if encoded is None:
            with encoding_bar(progress) as bar:
                encoded = encoder.encode(texts, progress=bar)
        _check.same_count("fit", "encoded", len(encoded), len(texts))
        query_moments = None
        if queries is not None:
            query_moments = Moments.from_rows(rows_with_vector(self._encoder.for_queries().encode(queries)))
        statistics = Statistics.of_texts(texts, encoded, attribute, query_moments, source=source)
        return self.fitted_on_statistics(statistics, chosen, report=report)

    def fitted_on_statistics(
        self, statistics: Statistics, transform: Transform | Auto | None, *, report: FitCallback | None = None
    ) -> Self:
        """Erase labels, if there are any, and fit a transform, or what auto chooses. All fits but on pairs come here.

        Labels that are not visible are not erased; a warning says so.
        """
        self._encoder.require_fitted("fit")
        model = self
        if transform is not None:
            self._postprocessing.check_fit(transform, queries=statistics.query_moments is not None)
        if statistics.labels is not None:
            model = self._erased(statistics.labels, statistics.source)
            statistics = statistics.without_labels(erased=model is not self)
        if transform is None:
            return model
        choice = model._choice(transform, statistics) if isinstance(transform, Auto) else transform
        basis, n_zero_rows = statistics.basis(distinct=isinstance(transform, Auto))
        queries, source = statistics.query_moments, statistics.source
        return model._fit(choice, basis, queries, source=source, n_zero_rows=n_zero_rows, report=report)

    def fitted_on_vectors(
        self,
        vectors: NDArray[np.floating],
        transform: Transform | Auto | str = AUTO,
        *,
        settings: Mapping[str, Any] | None = None,
        source: str = "vectors in memory",
        report: FitCallback | None = None,
    ) -> Self:
        """Return this model with a transform fitted on vectors of its bare encoder.

        Parameters
        ----------
        vectors : ndarray of shape (n_rows, encoder.dim), float
            What ``model.encoder.encode`` returned, here or elsewhere; zero rows, of texts without a vector, are left
            out.
        transform : Transform or str, default "auto"
            As for `fitted`. Without texts, "auto" applies no transform, or keeps the principal components if `settings`
            ask for fewer dimensions.
        settings : mapping of str to object, optional
            As for `fitted`.
        source : str, optional
            Where the vectors come from, for the record.
        report : callable, optional
            Called with the `FitProgress` of a flow.

        Returns
        -------
        SentenceEncoder
            A new model. A linear transform is folded into the map of this one.

        Raises
        ------
        InputError
            If the dimensions are not those of the encoder, all rows are zero, a number is NaN or infinite, or the
            transform refuses the rows.
        """
        self._encoder.require_fitted("fitted_on_vectors")
        array = _check.matrix("fitted_on_vectors", "vectors", vectors)
        _check.same_dim("fitted_on_vectors", "vectors", array.shape[1], self._encoder.dim)
        chosen = resolve_transform(transform, settings, dim=self.dim)
        if not isinstance(chosen, Auto):
            return self.fitted_on_statistics(Statistics(source, vectors=array), chosen, report=report)
        rows = rows_with_vector(array)
        statistics = Statistics(source, Moments.from_rows(rows), len(array) - len(rows), rows)
        return self.fitted_on_statistics(statistics, chosen)

    def fitted_on_moments(
        self,
        moments: Moments,
        transform: LinearTransform | Auto | str = AUTO,
        *,
        query_moments: Moments | None = None,
        texts: Sequence[str] | None = None,
        groups: NDArray[Any] | None = None,
        sample: NDArray[np.floating] | None = None,
        encoded: NDArray[np.floating] | None = None,
        n_zero_rows: int = 0,
        source: str = "moments in memory",
    ) -> Self:
        """Return this model with a transform fitted on the moments of vectors of its bare encoder.

        Parameters
        ----------
        moments : Moments
            Of the vectors of texts, without zero rows.
        transform : LinearTransform or str, default "auto"
            As for `fitted_on_vectors`.
        query_moments : Moments, optional
            Of the vectors of queries, whose mean is fitted separately (see `fitted`).
        texts : sequence of str, optional
            Texts like those of the moments, by which "auto" chooses; it uses up to 20,000.
        groups : ndarray of shape (n_texts,), optional
            Group of each text, such as its language, which "auto" keeps from moving further apart; found if not given.
        sample : ndarray of shape (n_rows, encoder.dim), float, optional
            Nonzero vectors, without texts: for fewer dimensions, "auto" subtracts the mean if their neighbors stay.
        encoded : ndarray of shape (n_texts, encoder.dim), float, optional
            The vectors of `texts`, to save encoding them, or where the model cannot encode.
        n_zero_rows : int, default 0
            Zero rows that were left out, for the record.
        source : str, optional
            As for `fitted`.

        Returns
        -------
        SentenceEncoder
            A new model.

        Raises
        ------
        InputError
            If the transform refuses the moments, the encoder is not fitted, or vectors of this model end with
            length 1 or a flow.
        """
        self._encoder.require_fitted("fitted_on_moments")
        chosen = resolve_transform(transform, dim=self.dim)
        if chosen is None:
            return self
        self._postprocessing.check_fit(chosen)
        if needs_vectors(chosen):
            raise InputError(
                f"a {chosen.kind} is fitted on vectors, not on moments. Use fitted_on_vectors.",
                where="fitted_on_moments",
            )
        vectors = sample if texts is None else encoded
        if texts is not None and vectors is None and isinstance(chosen, Auto):
            vectors = self._encoder.encode(texts)
        statistics = Statistics(source, moments, n_zero_rows, vectors, texts, groups, query_moments)
        return self.fitted_on_statistics(statistics, chosen)

    def fitted_on_pairs(
        self,
        queries: Sequence[str] | NDArray[np.floating],
        documents: Sequence[str] | NDArray[np.floating],
        *,
        queries_only: bool = False,
        kinds: Sequence[Any] | None = None,
        groups: PairGroups | Mapping[str, PairGroups] | None = None,
        source: str = "pairs in memory",
        progress: Progress | None = None,
    ) -> Self:
        r"""Return this model with a map fitted on matching pairs, or unchanged if none ranks held-out pairs better.

        Parameters
        ----------
        queries, documents : sequence of str, or array of shape (n_pairs, encoder.dim)
            Texts that match, row by row, or what the bare encoder returned for them. A text may occur in several pairs.
        queries_only : bool, default False
            Whether only queries are transformed, so that stored vectors of documents stay unchanged.
        kinds : sequence, optional
            The kind of each pair, such as its source. The map must then serve kinds that it was not fitted on. Pairs
            without one (None, NaN, empty) are left out, with a warning.
        groups : pair of sequences, or mapping of str to one, optional
            The group of each query and that of each document, such as their languages: at most 100. One more candidate
            is then a map of each group to a reference, the group that most others have pairs with. Pass the group to
            `encode`. A mapping names it, for the column of an index: ``{"lang": (of_queries, of_documents)}``.
        source : str, optional
            Where the pairs come from, for the record.
        progress : callable, optional
            Called as ``progress(done, total)``, counted in texts.

        Returns
        -------
        SentenceEncoder
            A new model. The ``choice`` of its last fit says what was compared. If its ``transform`` is ``"none"``, the
            vectors are those of this model.

        Raises
        ------
        InputError
            If the numbers of queries and documents differ; if pairs form fewer than 30 sets that share no text (with
            `groups`, those of each group with the reference); if vectors are NaN or infinite; or if vectors of this
            model end with length 1 or a flow.

        Notes
        -----
        With x and y the vectors of a pair, both sides are transformed by :math:`(x - \mu) D_g^{-s/2} V`, with D the
        covariance of x - y, shrunk by g, V principal axes, and a strength s; or by plain whitening. Queries alone are
        transformed by :math:`(S_{xx} + l I)^{-1} (S_{xy} + l I)`, ridge regression towards the identity. A fifth of the
        pairs is held out, whole groups that share no text. Folds of the others choose s, g and l by the mean reciprocal
        rank of the document. The map is used if this and nDCG@10 gain beyond chance on the fifth (95% intervals above
        zero, and random signs), with `kinds` on those that it was not fitted on. It is then fitted on all pairs.

        With `groups`, each text is searched for among the texts of both sides, all encoded as documents. With a and b
        the vectors of pairs of a group and the reference, each about its own mean, vectors of the group become
        :math:`(x - \mu_a) (A^\top A + l I)^{-1} (A^\top B + l I) + \mu_b`, and the reference stays unchanged.
        """
        self._encoder.require_fitted("fitted_on_pairs")
        self._postprocessing.check_fit(Auto())
        sides = [_check.texts_or_vectors("fitted_on_pairs", "pairs", side) for side in (queries, documents)]
        _check.same_count("fitted_on_pairs", "documents", len(sides[1]), len(sides[0]))
        column, labels = _pair_groups(groups)
        for name, values in (("kinds", kinds), *(("groups", each) for each in labels or ())):
            if values is not None:
                _check.same_count("fitted_on_pairs", name, len(values), len(sides[0]))
        check_roles(queries=queries_only or self._postprocessing.has_roles, groups=labels is not None)
        vectors, keys = [], []
        done, n_texts = 0, sum(len(side) for side in sides if isinstance(side, list))
        # a map of a group is of its documents and queries
        for role, side in zip(("query" if labels is None else "document", "document"), sides, strict=True):
            if isinstance(side, list):
                encoded = encoder_for(self._encoder, role).encode(side, progress=part_of(progress, done, n_texts))
                done += len(side)
            else:
                encoded = side
            _check.same_dim("fitted_on_pairs", "pairs", encoded.shape[1], self._encoder.dim)
            vectors.append(self._postprocessing.apply(encoded, Role(role == "query")))
            keys.append(side if isinstance(side, list) else [row.tobytes() for row in side])
        pairs = MatchingPairs(vectors[0], vectors[1], keys[0], keys[1], kinds, labels)
        choice = choose_from_pairs(pairs, queries_only=queries_only)
        counts, details = (len(pairs), pairs.n_zero_rows, source), choice.to_json()
        fit = FitRecord.made_now(choice.chosen.name, choice.parameters, *counts, choice=details)
        step = choice.step(column, queries_only=queries_only)
        return self._with(self._postprocessing if step is None else self._postprocessing.append(step), fit)

    def _with_encoder_fitted(self, texts: list[str], source: str, progress: Progress | None) -> Self:
        """Fit an encoder that learns from texts, and the linear step that belongs to it (SIF, p_mean)."""
        encoder = self._encoder.on_corpus(texts, progress=progress)
        postprocessing, step = NO_POSTPROCESSING, encoder.own_transform()
        if step is not None:
            postprocessing = postprocessing.fitted(step, rows_with_vector(encoder.encode(texts)))
        parameters, n_texts = encoder.settings(), encoder.corpus_size
        record = FitRecord.made_now(parameters.pop("weighting"), parameters, n_texts, len(texts) - n_texts, source)
        return self._with(postprocessing, record, encoder)

    def _erased(self, labels: LabeledStatistics, source: str) -> Self:
        """The model without an attribute; unchanged, with a warning, if it is not visible."""
        name = labels.attribute.name
        effect = labels.attribute.effect(self._postprocessing.apply(labels.vectors), labels.texts)
        if not effect.is_visible:
            warnings.warn(f"erase: {name} is not visible, so nothing was erased: {effect.reason}", IsosentWarning, 2)
            return self
        return self._fit(
            labels.moments.erasure(),
            labels.moments,  # type: ignore[arg-type]
            source=source,
            n_zero_rows=labels.n_zero_rows,
            parameters=labels.moments.facts(name),
            choice=effect.to_json(),
        )

    def _choice(self, wanted: Auto, statistics: Statistics) -> AutoChoice:
        """What auto chooses: by texts, or else by the neighbors that a sample keeps."""
        is_erased = bool(self._fits) and self._fits[-1].transform == "erasure"
        vectors = None if statistics.vectors is None else self._postprocessing.apply(statistics.vectors)
        if statistics.texts is None:
            assert statistics.moments is not None
            return choose_without_texts(
                self._postprocessing.moments(statistics.moments), wanted, vectors, is_erased=is_erased
            )
        assert vectors is not None
        return choose_from_texts(vectors, statistics.texts, wanted, groups=statistics.groups, is_erased=is_erased)

    def _fit(
        self,
        transform: Transform | AutoChoice,
        statistics: Moments | NDArray[np.floating],
        query_moments: Moments | None = None,
        *,
        source: str,
        n_zero_rows: int = 0,
        report: FitCallback | None = None,
        parameters: Mapping[str, Any] | None = None,
        choice: Mapping[str, Any] | None = None,
    ) -> Self:
        """Fit a transform, or what auto chose, on moments of the bare encoder's vectors, or on their nonzero rows.

        All fits but those on pairs end here. `parameters` and `choice` are for the record, if the transform does not
        say them.
        """
        fit: Transform | None
        if isinstance(transform, AutoChoice):
            fit, choice = transform.chosen.transform(), transform.to_json()
        else:
            fit = copy.deepcopy(transform)
        postprocessing = self._postprocessing.fitted(fit, statistics, query_moments, report=report)
        n_texts = len(statistics) if isinstance(statistics, np.ndarray) else round(statistics.weight)
        name = "none" if fit is None else transform_name(fit)
        if parameters is None:
            parameters = {} if fit is None else resolved_settings(fit)
        history = tuple(map(asdict, fit.history_)) if needs_vectors(fit) else None
        counts = n_texts, n_zero_rows, source
        return self._with(postprocessing, FitRecord.made_now(name, parameters, *counts, choice=choice, history=history))


def _pair_groups(groups: object) -> tuple[str, tuple[list[Any], list[Any]] | None]:
    """The column of the groups of pairs, and the groups of both sides."""
    if groups is None:
        return "group", None
    named = groups if isinstance(groups, Mapping) else {"group": groups}
    [(column, sides)] = named.items() if len(named) == 1 else [("", ())]
    if isinstance(sides, str) or not isinstance(sides, Iterable) or len(listed := list(sides)) != 2:
        raise InputError("groups: give one pair, the groups of the queries and those of the documents, or its mapping.")
    if not isinstance(column, str) or not re.fullmatch(r"[^\x00-\x1f\x7f-\x9f]+", column):
        raise InputError(f"groups: the name of a column, {column!r:.80}, is not printable text.")
    if any(isinstance(side, str) or not isinstance(side, Iterable) for side in listed):
        raise InputError("groups: give the group of each query, and that of each document, as two sequences.")
    return column, (list(listed[0]), list(listed[1]))
