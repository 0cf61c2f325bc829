"""Whether an embedding API gives the vectors of a model, and if not, why.

`check_endpoint` encodes texts that tell causes apart, through the API and locally. Vectors that differ are compared
with those of each way to serve the model wrongly (`Variant`): with other texts, another prompt, another pooling. A
cause is named if its variant fits clearly better than the model. What else can be wrong shows in the vectors: rows in
another order, lengths, first dimensions only, bits. Long texts are compared last, with the variant that fits the short
ones, and the length at which the API cuts is found by bisection over prefixes. What remains is rounding, by which the
precision is told, or another model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent.demo import demo_texts
from isosent.encoders.api import ApiEncoder
from isosent.encoders.load import encoder_for
from isosent.errors import ApiError, InputError
from isosent.evaluation.served import THE_MODEL, ServedCanary, ServedModel, Variant, roles_of, served_as
from isosent.model import SentenceEncoder
from isosent.numeric.canary import LEAST_COSINE
from isosent.numeric.similarity import nonzero_rows, unit_rows
from isosent.pages.progress import Progress
from isosent.role import RoleName
from isosent.storage import Storage

Vectors = NDArray[np.float32]

_N_ALONE: Final = 4  # texts that are also sent one by one
_LONG_WORDS: Final = (100, 300, 450, 1600)  # about 130, 400, 600 and 2,100 tokens
_ANOTHER: Final = 1 - LEAST_COSINE  # no precision differs as much
_CLEARLY: Final = 5.0  # times smaller differences of a variant that is named
_SAME: Final = 1e-6  # 1 - cosine, of float32
_HALF: Final = 2e-4  # of float16 and bfloat16
_SOME: Final = 100.0  # times the median, of texts that differ while the others do not
_LENGTHS: Final = 0.02  # relative


class Fit(NamedTuple):
    """How well the vectors of an API fit those of a variant of the model."""

    variant: str
    mean_cosine: float
    lowest_cosine: float


class Cause(NamedTuple):
    """Why vectors differ."""

    name: str
    explanation: str


@dataclass(frozen=True, slots=True)
class RoleCheck:
    """What was found for the texts of a role."""

    role: RoleName
    causes: tuple[Cause, ...]  # empty if the vectors are equal
    precision: str  # by which equal vectors differ
    lowest_cosine: float  # of a text, as the API answers; NaN for vectors of another width
    text: str  # that one, its beginning
    undone_cosine: float | None  # the lowest of a short text, once the causes are undone; None if none can be
    lengths: tuple[float, float]  # lowest and highest of a vector, as a part of that of the model; NaN if not known
    dims: tuple[int, int]  # of the API, and of the model
    fits: tuple[Fit, ...]  # best first; empty if no cause was looked for
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EndpointCheck:
    """Whether an API gives the vectors of a model."""

    endpoint: str
    model: str
    roles: tuple[RoleCheck, ...]

    @property
    def is_equal(self) -> bool:
        """Whether it does, but for rounding."""
        return not any(each.causes for each in self.roles)

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        roles = [asdict(each) | {"causes": [cause._asdict() for cause in each.causes]} for each in self.roles]
        for values, each in zip(roles, self.roles, strict=True):
            values["fits"] = [fit._asdict() for fit in each.fits]
        names = dict.fromkeys(cause.name for each in self.roles for cause in each.causes)
        facts = {"endpoint": self.endpoint, "model": self.model, "equal": self.is_equal, "causes": list(names)}
        return facts | {"roles": roles}


def check_endpoint(
    endpoint: SentenceEncoder, model: SentenceEncoder, *, progress: Progress | None = None
) -> EndpointCheck:
    """Compare the vectors of an API with those of a model.

    Parameters
    ----------
    endpoint : SentenceEncoder
        The API, as from ``isosent.load("api:...?cache=none")``: vectors of a cache would say nothing of it.
    model : SentenceEncoder
        The model that it should serve, or another API. Of one that was fitted on vectors, those of fixed texts are
        compared, if it has them.
    progress : callable, optional
        Called as ``progress(done, total)``, counted in roles of texts.

    Returns
    -------
    EndpointCheck
        What was found.

    Raises
    ------
    InputError
        If `endpoint` is no API, a model must be fitted first, or has neither an encoder nor vectors of fixed texts.
    ApiError
        If the API does not answer, or refuses short texts.
    """
    api = endpoint.encoder
    if not isinstance(api, ApiEncoder):
        raise InputError(f"check: {api.reference} is no API. Name the API first, as in api:URL?model=NAME.")
    roles = roles_of(model, has_roles=api.for_queries() is not api)
    checks = []
    for done, role in enumerate(roles):
        if progress:
            progress(done, len(roles))
        checks.append(_Check(api, model, role).result())
    if progress:
        progress(len(roles), len(roles))
    return EndpointCheck(api.reference, model.record.name, tuple(checks))


_ANOTHER_MODEL: Final = Cause("another model", "no way to serve this model gives these vectors")
_OTHER_THAN_KEPT: Final = Cause(
    "other vectors",
    "a canary cannot tell another model from another prompt, pooling, layer or change of the texts. Name the model "
    "itself to find out",
)
_LONG_OF_KEPT: Final = Cause(
    "long texts",
    "only the long text differs, of 600 tokens: it is cut at another length, or read in another way. Name the model "
    "itself to find out",
)


class _Check:
    """The comparison for one role: `result` goes through it from top to bottom."""

    def __init__(self, api: ApiEncoder, model: SentenceEncoder, role: RoleName) -> None:
        self.api, self.role = api, role
        self.served = served_as(model, role)
        self.causes: list[Cause] = []
        self.notes: list[str] = []
        self.fits: list[Fit] = []
        self.long: list[tuple[float, str]] = []  # differences of long texts

    def result(self) -> RoleCheck:
        """Compare short texts, then long ones."""
        local = self._local(self.served.texts, THE_MODEL)
        answered = self._first_answer()
        vectors = self._in_order(answered)
        differences, undone = _differences(answered, local), None
        variant, precision = THE_MODEL, ""
        if (bits := _bits_in(vectors, local)) is not None:
            self.causes.append(bits)
            if vectors.shape[1] < local.shape[1]:
                differences = np.full(len(self.served.texts), np.inf)
        else:
            in_order = _differences(vectors, local)
            if in_order.max() > _SAME or vectors.shape[1] != local.shape[1]:
                variant = self._best_variant(vectors, in_order)
            precision = self._compare(vectors, variant)
            remaining = float(_differences(vectors, self._local(self.served.texts, variant)).max())
            if vectors is not answered or variant is not THE_MODEL:
                undone = 1 - remaining
            served = self.served
            if precision and isinstance(served, ServedModel):
                self._compare_long(served, variant, remaining)
            elif precision and isinstance(served, ServedCanary):
                self._compare_kept_long(served)
        compared = [*zip(differences.tolist(), self.served.texts, strict=True), *self.long]
        difference, text = max(compared, key=lambda each: each[0])
        ratios = _lengths(vectors, local) if self.served.has_lengths else np.full(1, np.nan)
        return RoleCheck(
            self.role,
            tuple(self.causes),
            precision,
            1 - difference if np.isfinite(difference) else float("nan"),
            text[:60],
            undone,
            (float(ratios.min()), float(ratios.max())),
            (vectors.shape[1], local.shape[1]),
            tuple(sorted(self.fits, key=lambda fit: -fit.mean_cosine)),
            tuple(self.notes),
        )

    def _asked(self, texts: Sequence[str]) -> Vectors:
        return encoder_for(self.api, self.role).encode(list(texts))

    def _local(self, texts: Sequence[str], variant: Variant, **options: Any) -> Vectors:
        vectors = self.served.encode(texts, variant, **options)
        assert vectors is not None  # it was made before
        return vectors

    # -- answers ---------------------------------------------------------------------------------------------------

    def _first_answer(self) -> Vectors:
        """Vectors of the short texts in one request; as numbers, if those in base64 are others, or none."""
        vectors = None
        try:
            vectors = self._asked(self.served.texts)
        except ApiError:
            if not self.api.has_base64:
                raise
        if vectors is not None and not self.api.has_base64:
            return vectors
        in_base64, self.api = self.api, self.api.without_base64()
        numbers = self._asked(self.served.texts)
        if vectors is not None and _fit(vectors, numbers):
            self.api = in_base64
            return vectors
        explanation = "what is sent in base64 is not what is sent as numbers; the numbers are compared below"
        self.causes.append(Cause("base64", explanation))
        return numbers

    def _in_order(self, together: Vectors) -> Vectors:
        """Vectors that do not depend on the other texts of a request; a server that confuses them is named."""
        texts = self.served.texts
        places = np.linspace(0, len(texts) - 1, _N_ALONE).astype(int)
        alone = np.concatenate([self._asked([texts[place]]) for place in places])
        if _fit(together[places], alone):
            return together
        alone = np.concatenate([self._asked([text]) for text in texts])
        nearest = np.argmax(unit_rows(alone) @ unit_rows(together).T, axis=1)
        if len(set(nearest)) == len(texts) and _fit(together[nearest], alone):
            explanation = "the vectors of a request come in another order than its texts"
            self.causes.append(Cause("rows in another order", explanation))
        else:
            explanation = "the vector of a text depends on the other texts of its request: padding is not masked"
            self.causes.append(Cause("batch", explanation))
        return alone

    # -- short texts -----------------------------------------------------------------------------------------------

    def _best_variant(self, vectors: Vectors, differences: NDArray[np.float64]) -> Variant:
        """The variant that fits clearly better than the model; the model, if none does."""
        scores = {THE_MODEL: differences}
        for variant in self.served.variants():
            if (encoded := self.served.encode(self.served.texts, variant)) is not None:
                scores[variant] = _differences(vectors, encoded)
        means = {variant: float(each.mean()) for variant, each in scores.items()}
        self.fits = [
            Fit(variant.detail, 1 - means[variant], 1 - float(each.max()))
            for variant, each in scores.items()
            if np.isfinite(means[variant])
        ]
        least = min(means.values())
        best = next(variant for variant, mean in means.items() if mean <= 1.5 * least + _SAME / 10)  # the simplest
        is_clear = means[best] * _CLEARLY < means[THE_MODEL] and scores[best].max() <= _ANOTHER
        if best is THE_MODEL or not is_clear:
            return THE_MODEL
        self.causes.append(Cause(best.cause, f"the vectors are those of {best.detail}"))
        return best

    def _compare(self, vectors: Vectors, variant: Variant) -> str:
        """Widths, texts that differ alone, and lengths; the precision, if nothing but rounding differs."""
        local = self._local(self.served.texts, variant)
        differences = _differences(vectors, local)
        highest, median = float(differences.max()), float(np.median(differences))
        if highest > _SOME * max(median, _SAME) and highest > 10 * _HALF and median <= _HALF:
            texts = [repr(self.served.texts[row][:30]) for row in np.flatnonzero(differences > highest / 10).tolist()]
            self.causes.append(Cause("other tokens", f"only some texts differ: {', '.join(texts)}"))
        elif not highest <= _ANOTHER:
            self.causes.append(_OTHER_THAN_KEPT if isinstance(self.served, ServedCanary) else _ANOTHER_MODEL)
            return ""
        if (dim := vectors.shape[1]) < local.shape[1]:
            explanation = f"the first {dim} of {local.shape[1]} dimensions"
            self.causes.append(Cause("first dimensions only", explanation))
        elif self.served.has_lengths and not _has_steps(vectors):
            is_same = differences <= _ANOTHER
            self._compare_lengths(vectors[is_same], local[is_same])
        return _precision(vectors, highest)

    def _compare_lengths(self, vectors: Vectors, local: Vectors) -> None:
        ratios, lengths = _lengths(vectors, local), np.linalg.norm(vectors, axis=1)
        if np.abs(ratios - 1).max() <= _LENGTHS:
            return
        if np.abs(lengths - 1).max() <= _LENGTHS:  # as most servers do, ours too
            self.notes.append("The API scales vectors to length 1, the model does not. Cosines are the same.")
        elif np.ptp(ratios) <= _LENGTHS * ratios.mean():
            self.causes.append(Cause("another scale", f"all vectors are {ratios.mean():.4g} times as long"))
        else:
            span = f"their lengths are {lengths.min():.3g} to {lengths.max():.3g}"
            self.causes.append(Cause("no normalization", f"the vectors differ in length alone: {span}"))

    # -- long texts ------------------------------------------------------------------------------------------------

    def _compare_long(self, served: ServedModel, variant: Variant, noise: float) -> None:
        """Compare texts of more and more words; where one differs, find out how much of it the API reads."""
        words = " ".join(demo_texts()).split()
        longest, limit = _LONG_WORDS[-1], served.max_length
        if limit is not None:  # a bit beyond it
            longest = min(longest, max(limit, _LONG_WORDS[0]) + 50)
        tolerance = max(5 * noise, _SAME)
        for n_words in (*(n for n in _LONG_WORDS if n < longest), longest):
            text = " ".join(words[:n_words])
            if (vectors := self._asked_long(text)) is None:
                return
            difference = float(_differences(vectors, self._local([text], variant)).max())
            if variant is THE_MODEL:
                self.long.append((difference, text))
            if difference > tolerance:
                longer = words[: _LONG_WORDS[-1]] if served.longest else words[:n_words]
                if (of_longer := self._asked_long(" ".join(longer))) is not None:
                    self._find_length(served, longer, of_longer, variant, tolerance)
                else:
                    self._find_length(served, words[:n_words], vectors, variant, tolerance)
                return

    def _compare_kept_long(self, served: ServedCanary) -> None:
        """Compare the long text of a canary."""
        for text in served.long_texts:
            if (vectors := self._asked_long(text)) is not None:
                difference = float(_differences(vectors, served.encode([text])).max())
                self.long.append((difference, text))
                if difference > _ANOTHER:
                    self.causes.append(_LONG_OF_KEPT)

    def _asked_long(self, text: str) -> Vectors | None:
        try:
            return self._asked([text])
        except ApiError as error:
            self.notes.append(f"a text of {len(text.split()):,} words is refused: {error}")
            return None

    def _find_length(
        self, served: ServedModel, words: list[str], vectors: Vectors, variant: Variant, tolerance: float
    ) -> None:
        """Name the length at which the API cuts: the longest prefix that it reads as a whole."""
        options = served.longest
        usual = "" if (limit := served.max_length) is None else f"; the model cuts at {limit:,}"
        prefixes = [text.lstrip() for text in accumulate(words, "{} {}".format, initial="")]

        def is_read(n_words: int) -> bool:  # as a whole
            text = prefixes[n_words]
            return bool(_differences(self._asked([text]), self._local([text], variant, **options)).max() <= tolerance)

        if options and is_read(len(words)):  # beyond the maximum of the model
            n_tokens = served.n_tokens(prefixes[-1])
            explanation = f"texts are read to {n_tokens:,} tokens or more{usual}"
            self.causes.append(Cause("cut at another length", explanation))
            return
        first, last = 0, len(words)  # as a whole, not as a whole
        while last - first > 1:
            middle = (first + last) // 2
            first, last = (middle, last) if is_read(middle) else (first, middle)
        lowest, highest = (served.n_tokens(prefixes[each]) for each in (first, last))
        if not options or lowest is None or highest is None:
            self.causes.append(Cause("cut at another length", f"texts are cut after {first:,} words{usual}"))
            return
        fits = {}
        for length in range(lowest, highest):  # tokens of the last word
            if (encoded := served.encode([prefixes[-1]], variant, max_length=length)) is not None:
                fits[length] = float(_differences(vectors, encoded).max())
        best = min(fits, key=lambda length: fits[length], default=None)
        if best is not None and fits[best] <= tolerance:
            self.causes.append(Cause("cut at another length", f"texts are cut at {best:,} tokens{usual}"))
        else:
            explanation = f"texts of more than {lowest:,} tokens differ, and not because their end is cut off{usual}"
            self.causes.append(Cause("long texts", explanation))


def _differences(vectors: Vectors, local: Vectors) -> NDArray[np.float64]:
    """1 - cosine of each text, in the dimensions of the vectors; infinite if the model has fewer."""
    dim = vectors.shape[1]
    if dim > local.shape[1]:
        return np.full(len(vectors), np.inf)
    local = local[:, :dim]
    first, second = (unit_rows(each.astype(np.float64)) for each in (vectors, local))
    # from the chord: near 1 a cosine has no digits left
    differences: NDArray[np.float64] = np.square(first - second).sum(axis=1) / 2
    has_neither = ~nonzero_rows(vectors) & ~nonzero_rows(local)
    differences[has_neither] = 0
    return differences


def _fit(vectors: Vectors, others: Vectors) -> bool:
    """Whether two answers of an API are the same, but for rounding."""
    return vectors.shape == others.shape and bool(_differences(vectors, others).max() <= _ANOTHER)


def _lengths(vectors: Vectors, local: Vectors) -> NDArray[np.float64]:
    """Lengths of vectors, as parts of those of the model."""
    is_usual = nonzero_rows(vectors) & nonzero_rows(local)
    if not is_usual.any():
        return np.ones(1)
    first, second = (np.linalg.norm(each[is_usual].astype(np.float64), axis=1) for each in (vectors, local))
    ratios: NDArray[np.float64] = first / second
    return ratios


def _bits_in(vectors: Vectors, local: Vectors) -> Cause | None:
    """Whether they are bits of the vectors of the model, as numbers or eight in one."""
    dim, n_dims = vectors.shape[1], local.shape[1]
    is_whole = bool((vectors == np.round(vectors)).all())
    if is_whole and 8 * dim == n_dims and vectors.min() >= -128 and vectors.max() <= 255:
        offset = 128 if vectors.min() < 0 else 0
        bits = np.unpackbits((vectors + offset).astype(np.uint8), axis=1)
        explanation = "bits, eight in one number"
    elif dim == n_dims and len(np.unique(np.abs(vectors))) <= 2 and len(np.unique(vectors)) == 2:
        bits = vectors > vectors.min()
        explanation = "bits: each number has one of two values"
    else:
        return None
    agreement = float(np.mean(bits.astype(bool) == (local > 0)))
    return Cause("bits", f"the vectors are {explanation}") if agreement > 0.95 else None


def _has_steps(vectors: Vectors) -> bool:
    """Whether the numbers of each vector are whole, or multiples of a step of it, as int8 codes are."""
    rows = vectors[nonzero_rows(vectors)].astype(np.float64)
    steps = rows if (rows == np.round(rows)).all() else 127 * rows / np.abs(rows).max(axis=1, keepdims=True)
    return bool(np.abs(steps - np.round(steps)).max() < 1e-3)


def _precision(vectors: Vectors, difference: float) -> str:
    """The number type of vectors: by their digits, or by how far they are from those of float32."""
    if _has_steps(vectors):
        return Storage.int8
    if not (vectors.view(np.uint32) & 0xFFFF).any():
        return Storage.bfloat16
    with np.errstate(over="ignore"):
        is_half = bool((vectors.astype(np.float16) == vectors).all())
    if is_half:
        return Storage.float16
    if difference <= _SAME:
        return Storage.float32
    return f"about {Storage.float16} or {Storage.bfloat16}" if difference <= _HALF else f"about {Storage.int8}"
