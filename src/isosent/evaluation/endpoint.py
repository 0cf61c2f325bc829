"""Whether an embedding API gives the vectors of a model, and if not, why.

`check_endpoint` encodes texts that tell causes apart, through the API and locally. Vectors that differ are compared with
those of each variant of the model (`evaluation.variants`); a cause is named if its variant fits clearly better than the
model. What else can be wrong shows in the vectors: rows in another order, lengths, first dimensions only, bits. Long
texts are compared last, with the variant that fits the short ones, and the length at which the API cuts is found by
bisection over prefixes. What remains is rounding, by which the precision is told, or another model.
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
from isosent.errors import ApiError, InputError
from isosent.evaluation.variants import THE_MODEL, ServedModel, Variant, variants_of
from isosent.model import SentenceEncoder
from isosent.numeric.canary import FIXED_TEXTS, LEAST_COSINE, N_SHORT
from isosent.numeric.similarity import nonzero_rows, unit_rows
from isosent.pages.progress import Progress
from isosent.role import RoleName

Vectors = NDArray[np.float32]

_SHORT_TEXTS: Final = (
    *FIXED_TEXTS[:N_SHORT],
    "NASA and the FBI met Dr. Müller of BMW in New York.",
    "The QUICK Brown fOX",
    "Déjà vu: la façade naïve de l'élite, señor Núñez.",
    "Great job 🎉🙂 see you tomorrow 👋🏽",
    "First line.\nSecond line.\n\n\tAn indented one.",
    "  two  spaces  at  the  ends  ",
    "no",
    "ﬁne ½ Ⅳ ｆｕｌｌ ﬂag",
    "<p>Tom &amp; Jerry</p> https://example.org/a?b=c#d (50%)",
    "Το γρήγορο καφέ αλεπού, быстрая лиса, الثعلب السريع",
    " ".join(FIXED_TEXTS[:N_SHORT]),
)
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
    lowest_cosine: float  # of a text, NaN for vectors of another width
    text: str  # that one, its beginning
    lengths: tuple[float, float]  # lowest and highest length of a vector, as a part of that of the model
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
        The model that it should serve, or another API.
    progress : callable, optional
        Called as ``progress(done, total)``, counted in roles of texts.

    Returns
    -------
    EndpointCheck
        What was found.

    Raises
    ------
    InputError
        If `endpoint` is no API, or a model must be fitted first.
    ApiError
        If the API does not answer, or refuses short texts.
    """
    api = endpoint.encoder
    if not isinstance(api, ApiEncoder):
        raise InputError(f"check: {api.reference} is no API. Name the API first, as in api:URL?model=NAME.")
    # an API that has no roles of its own is sent texts as they are
    roles: tuple[RoleName, ...] = ("text",) if api.for_queries() is api else ("query", "document")
    checks = []
    for done, role in enumerate(roles):
        if progress:
            progress(done, len(roles))
        checks.append(_Check(endpoint, model, role).result())
    if progress:
        progress(len(roles), len(roles))
    return EndpointCheck(api.reference, model.encoder.reference, tuple(checks))


class _Check:
    """The comparison for one role: `result` goes through it from top to bottom."""

    def __init__(self, endpoint: SentenceEncoder, model: SentenceEncoder, role: RoleName) -> None:
        self.endpoint, self.role = endpoint, role
        self.served = ServedModel(model, role)
        self.causes: list[Cause] = []
        self.notes: list[str] = []
        self.fits: list[Fit] = []

    def result(self) -> RoleCheck:
        """Compare short texts, then long ones."""
        local = self.served.encode(_SHORT_TEXTS)
        assert local is not None  # the model itself has vectors
        vectors = self._in_order(self._asked(_SHORT_TEXTS))
        differences = _differences(vectors, local)
        variant, precision = THE_MODEL, ""
        if (bits := _bits_in(vectors, local)) is not None:
            self.causes.append(bits)
            differences = np.full(len(_SHORT_TEXTS), np.nan)
        else:
            if differences.max() > _SAME or vectors.shape[1] != local.shape[1]:
                variant = self._best_variant(vectors, local, differences)
            precision = self._compare(vectors, variant)
            if "another model" not in [cause.name for cause in self.causes]:
                self._compare_long(variant, _differences(vectors, self._local(_SHORT_TEXTS, variant)).max())
        ratios = _lengths(vectors, local)
        worst = int(np.nanargmax(differences)) if np.isfinite(differences).any() else 0
        lowest = 1 - float(differences[worst])
        return RoleCheck(
            self.role,
            tuple(self.causes),
            precision,
            lowest if np.isfinite(lowest) else float("nan"),
            _SHORT_TEXTS[worst][:60],
            (float(ratios.min()), float(ratios.max())),
            (vectors.shape[1], local.shape[1]),
            tuple(sorted(self.fits, key=lambda fit: -fit.mean_cosine)),
            tuple(self.notes),
        )

    def _asked(self, texts: Sequence[str]) -> Vectors:
        return self.endpoint.encode(list(texts), role=self.role)

    def _local(self, texts: Sequence[str], variant: Variant, **options: Any) -> Vectors:
        vectors = self.served.encode(texts, variant, **options)
        assert vectors is not None  # it was made before
        return vectors

    # -- rows ------------------------------------------------------------------------------------------------------

    def _in_order(self, together: Vectors) -> Vectors:
        """Vectors that do not depend on the other texts of a request; a server that confuses them is named."""
        texts = _SHORT_TEXTS
        places = np.linspace(0, len(texts) - 1, _N_ALONE).astype(int)
        alone = np.concatenate([self._asked([texts[place]]) for place in places])
        if _differences(together[places], alone).max() <= _ANOTHER:
            return together
        alone = np.concatenate([self._asked([text]) for text in texts])
        nearest = np.argmax(unit_rows(alone) @ unit_rows(together).T, axis=1)
        if len(set(nearest)) == len(texts) and _differences(together[nearest], alone).max() <= _ANOTHER:
            explanation = "the vectors of a request come in another order than its texts"
            self.causes.append(Cause("rows in another order", explanation))
        else:
            explanation = "the vector of a text depends on the other texts of its request: padding is not masked"
            self.causes.append(Cause("batch", explanation))
        return alone

    # -- short texts -----------------------------------------------------------------------------------------------

    def _best_variant(self, vectors: Vectors, local: Vectors, differences: NDArray[np.float64]) -> Variant:
        """The variant that fits clearly better than the model; the model, if none does."""
        scores = {THE_MODEL: differences}
        for variant in variants_of(self.served.model):
            if (encoded := self.served.encode(_SHORT_TEXTS, variant)) is not None:
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
        local = self._local(_SHORT_TEXTS, variant)
        differences = _differences(vectors, local)
        highest, median = float(differences.max()), float(np.median(differences))
        if highest > _SOME * max(median, _SAME) and highest > 10 * _HALF and median <= _HALF:
            texts = [repr(_SHORT_TEXTS[row][:30]) for row in np.flatnonzero(differences > highest / 10)]
            self.causes.append(Cause("other tokens", f"only some texts differ: {', '.join(texts)}"))
        elif not highest <= _ANOTHER:
            self.causes.append(Cause("another model", "no way to serve this model gives these vectors"))
            return ""
        if (dim := vectors.shape[1]) < local.shape[1]:
            explanation = f"the first {dim} of {local.shape[1]} dimensions"
            self.causes.append(Cause("first dimensions only", explanation))
        elif not _has_steps(vectors):
            self._compare_lengths(vectors, local)
        return _precision(vectors, highest)

    def _compare_lengths(self, vectors: Vectors, local: Vectors) -> None:
        ratios, lengths = _lengths(vectors, local), np.linalg.norm(vectors, axis=1)
        if np.abs(ratios - 1).max() <= _LENGTHS:
            return
        if np.ptp(ratios) <= _LENGTHS * ratios.mean():
            self.causes.append(Cause("another scale", f"all vectors are {ratios.mean():.4g} times as long"))
        elif np.abs(lengths - 1).max() <= _LENGTHS:
            self.causes.append(Cause("normalization", "the vectors have length 1, those of the model have not"))
        else:
            span = f"their lengths are {lengths.min():.3g} to {lengths.max():.3g}"
            self.causes.append(Cause("no normalization", f"the vectors differ in length alone: {span}"))

    # -- long texts ------------------------------------------------------------------------------------------------

    def _compare_long(self, variant: Variant, noise: float) -> None:
        """Compare texts of more and more words; where one differs, find out how much of it the API reads."""
        words = " ".join(demo_texts()).split()
        longest, limit = _LONG_WORDS[-1], self.served.max_length
        if limit is not None:  # at its border, and a bit beyond
            longest = min(longest, max(limit, _LONG_WORDS[0]) + 50)
        tolerance = max(5 * noise, _SAME)
        for n_words in (*(n for n in _LONG_WORDS if n < longest), longest):
            text = " ".join(words[:n_words])
            try:
                vectors = self._asked([text])
            except ApiError as error:
                self.notes.append(f"a text of {n_words:,} words is refused: {error}")
                return
            difference = float(_differences(vectors, self._local([text], variant)).max())
            if difference > tolerance:
                self._find_length(words[:n_words], vectors, variant, tolerance, difference)
                return

    def _find_length(
        self, words: list[str], vectors: Vectors, variant: Variant, tolerance: float, difference: float
    ) -> None:
        served, options = self.served, self.served.longest
        prefixes = [text.lstrip() for text in accumulate(words, "{} {}".format, initial="")]

        def is_read(n_words: int) -> bool:  # as a whole
            text = prefixes[n_words]
            return _differences(self._asked([text]), self._local([text], variant, **options)).max() <= tolerance

        limit = served.max_length
        usual = "" if limit is None else f"; the model cuts at {limit:,}"
        if _differences(vectors, self._local([prefixes[-1]], variant, **options)).max() <= tolerance:
            explanation = f"texts are read beyond the maximum of the model: {served.n_tokens(prefixes[-1]):,} tokens"
            self.causes.append(Cause("cut at another length", explanation + usual))
            return
        first, last = 0, len(words)  # as a whole, not as a whole
        while last - first > 1:
            middle = (first + last) // 2
            first, last = (middle, last) if is_read(middle) else (first, middle)
        lowest, highest = (served.n_tokens(prefixes[each]) for each in (first, last))
        if lowest is None or highest is None:
            explanation = f"texts are cut after {first:,} words"
            self.causes.append(Cause("cut at another length", explanation))
            return
        best, least = lowest, difference
        if options:
            for length in range(lowest, highest):
                encoded = served.encode([prefixes[-1]], variant, max_length=length)
                fit = np.inf if encoded is None else float(_differences(vectors, encoded).max())
                best, least = (length, fit) if fit < least else (best, least)
        elif highest - 1 > lowest:
            best = highest - 1
        if options and least * _CLEARLY > difference:
            explanation = f"texts of more than {lowest:,} tokens differ, and not because their end is cut off"
            self.causes.append(Cause("long texts", explanation + usual))
        else:
            self.causes.append(Cause("cut at another length", f"texts are cut at {best:,} tokens{usual}"))


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
    if is_whole and 8 * dim == n_dims and -128 <= vectors.min() and vectors.max() <= 255:
        offset = 128 if vectors.min() < 0 else 0
        bits = np.unpackbits((vectors + offset).astype(np.uint8), axis=1)
        explanation = "bits, eight in one number"
    elif dim == n_dims and len(np.unique(np.abs(vectors))) <= 2 and len(np.unique(vectors)) == 2:
        bits = vectors > vectors.min()
        explanation = "bits: each number has one of two values"
    else:
        return None
    agreement = float(np.mean(bits.astype(bool) == (local > 0)))
    return Cause("binary", f"the vectors are {explanation}") if agreement > 0.95 else None


def _has_steps(vectors: Vectors) -> bool:
    """Whether the numbers of each vector are whole, or multiples of a step of it, as int8 codes are."""
    rows = vectors[nonzero_rows(vectors)].astype(np.float64)
    steps = rows if (rows == np.round(rows)).all() else 127 * rows / np.abs(rows).max(axis=1, keepdims=True)
    return bool(np.abs(steps - np.round(steps)).max() < 1e-3)


def _precision(vectors: Vectors, difference: float) -> str:
    """The number type of vectors: by their digits, or by how far they are from those of float32."""
    if _has_steps(vectors):
        return "int8"
    if not (vectors.view(np.uint32) & 0xFFFF).any():
        return "bfloat16"
    with np.errstate(over="ignore"):
        is_half = bool((vectors.astype(np.float16) == vectors).all())
    if is_half:
        return "float16"
    if difference <= _SAME:
        return "float32"
    return "about float16 or bfloat16" if difference <= _HALF else "about int8"
