"""What is asked of `run_fit`: a `FitRequest`, and the table of what does not go together.

A face, such as the command line, makes one request. `check` looks up its parts (options, and facts such as "no
transform" or "the input holds texts") in `EXCLUSIONS`: of a row, no part on the left goes with one on the right. The
first row that is violated is the message. It is called twice: before anything is opened, and when the
sources say what they hold.

`FitInputs` is what `run_fit` asks of inputs, of which each kind is a class in a separate file: `load` reads what must
be known and loads the model, `statistics` are those of the vectors of the bare encoder, `fitted` erases and transforms,
`saved` follows when the model is on the disk, and `details` adds what only this kind can say.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent.errors import InputError, next_step, option
from isosent.io.source import Source
from isosent.jobs.shards import Engine
from isosent.loading import load_model
from isosent.model import SentenceEncoder
from isosent.persistence import FitRecord
from isosent.transforms.base import (
    AUTO,
    NO_TRANSFORM,
    Auto,
    FitProgress,
    Transform,
    needs_vectors,
    resolve_transform,
)
from isosent.transforms.statistics import Statistics

Say = Callable[[str], None]
Floats = NDArray[np.floating]


class Exclusion(NamedTuple):
    """Parts of a request, of which none on the left goes with one on the right, and the sentence that says so.

    In the sentence, ``{these}`` and ``{those}`` are what was given of the left and of the right, ``{first}`` is the
    first of those, and ``{every}`` is all that is on the right.
    """

    left: str
    right: str
    sentence: str


_BOTH_SET_THE_SIZE = "{these} and {those} both set the size. Leave one out."
_LEAVE_ONE_OUT = "{these} does not go with {those}. Leave one out."
_OF_LINEAR = "{these} are for a linear transform, not for {those}. Leave them out."
_OF_VECTORS = "{these} needs vectors, not moments, and a linear transform."
_NONLINEAR = "a transform that is not linear"
_PAIRS = "{request.pairs}"
_OF_PAIRS = option("pairs", _PAIRS)
_CHOOSES = f"{option('pairs')} chooses the transform itself, so it does not go with {{those}}. Leave that out"

EXCLUSIONS = (
    Exclusion("n_bytes", "loss", _BOTH_SET_THE_SIZE),
    Exclusion(
        "erase",
        "no inputs",
        "{these} has no texts. Name their table: "
        + next_step(f"isosent fit TABLE {option('erase', '{request.erase}')} {_OF_PAIRS}", "inputs=[TABLE]"),
    ),
    Exclusion("no pairs", "no inputs", "there is no input. Name files of texts or vectors."),
    Exclusion(
        "only queries",
        "fit on inputs",
        f"{{these}} names no file. Name one; without a file it goes with {option('pairs')}.",
    ),
    Exclusion(
        "fit on pairs",
        "transform, n_components, strength",
        f"{_CHOOSES}, or fit it first, separately, and name that model: -m FOLDER.",
    ),
    Exclusion(
        "fit on pairs",
        "purpose, queries, texts, checkpoint, n_bytes, loss, engine, shard_size",
        f"{_CHOOSES}.",
    ),
    Exclusion("pairs of texts", "inputs, space", f"{_PAIRS} holds texts, so {{first}} has no use. Leave it out."),
    Exclusion(
        "pairs of vectors",
        "no inputs",
        f"{_PAIRS} holds vectors. Name the files of the documents that match them row by row: "
        f"{next_step(f'isosent fit DOCUMENTS {_OF_PAIRS}', 'inputs=[DOCUMENTS]')}.",
    ),
    Exclusion("pairs of vectors", "moments", f"{option('pairs')} needs vectors. Moments hold no pairs."),
    Exclusion(
        "n_bytes, loss",
        "erase, queries",
        "{these} measures the vectors that {those} would change. Fit twice: leave {these} out, then fit with {these} "
        "on the model that was saved: -m FOLDER.",
    ),
    Exclusion("n_bytes, loss", "no transform, engine", _LEAVE_ONE_OUT),
    Exclusion("n_bytes, loss", "width of auto", _BOTH_SET_THE_SIZE),
    Exclusion("engine", "queries, texts, space, checkpoint, pairs", "{every} do not go with {these}."),
    Exclusion("shard_size", "one process", f"{{these}} is for {option('engine')}."),
    Exclusion("engine", f"no transform, {_NONLINEAR}", _OF_LINEAR),
    Exclusion("inputs of texts", "inputs of vectors", "{these}, and {those}. Name files of one kind."),
    Exclusion("pairs", "inputs of vectors", f"{_PAIRS} is searched in texts, and {{those}}. Name the texts."),
    Exclusion("inputs of texts", "texts, space, checkpoint", "{every} are for vectors; {these}."),
    Exclusion("queries", "no transform", f"{{these}} needs a transform, and {option('transform')} is {NO_TRANSFORM}."),
    Exclusion("space", "model", "{these} and {those} name what made the vectors. Leave one out."),
    Exclusion("erase of vectors", f"moments, {_NONLINEAR}, queries, checkpoint", "{these} does not go with {every}."),
    Exclusion("n_bytes, loss", "nonlinear of vectors, moments alone", _OF_VECTORS),
    Exclusion(
        "texts",
        "moments, transform of vectors",
        f"{{these}} are for {option('transform', AUTO)}, which compares the vectors of texts with them.",
    ),
    Exclusion(
        "nonlinear of vectors", "moments, queries, checkpoint", "{these} needs vectors; {every} do not go with it."
    ),
)


@dataclass(frozen=True, kw_only=True, eq=False)
class FitRequest:
    """What to fit, and on what. `model` is a reference; without one, vectors are of no encoder.

    With `pairs` alone, the transform is fitted on pairs: of texts in a table; or of vectors, where `pairs` holds the
    query of each row of `inputs`. With `erase` they are counted before and after.
    """

    inputs: Sequence[str]
    output: str | os.PathLike[str]
    model: str | None = None
    transform: Transform | Auto | str | None = AUTO
    settings: Mapping[str, Any] = field(default_factory=dict)  # of a transform that is named
    column: str | None = None
    erase: str | None = None
    pairs: str | None = None
    queries: str | None = None  # a file
    queries_only: bool = False  # of pairs: documents stay as they are
    texts: str | None = None
    space: str | None = None
    checkpoint: str | os.PathLike[str] | None = None
    n_bytes: float | None = None  # of a vector, at most
    loss: float | None = None  # share of the neighbors, at most
    details: bool = False  # product quantization is tried, too
    engine: Engine | None = None  # workers that encode
    shard_size: int | None = None

    @cached_property
    def fits_pairs(self) -> bool:
        """Whether the transform is fitted on pairs."""
        return self.pairs is not None and self.erase is None

    @cached_property
    def resizes(self) -> bool:
        """Whether dimensions and a dtype are chosen."""
        return self.n_bytes is not None or self.loss is not None

    @cached_property
    def named_transform(self) -> Transform | Auto | None:
        """The transform, as it was named."""
        return resolve_transform(self.transform, self.settings)

    @cached_property
    def fitted_transform(self) -> Transform | Auto | None:
        """The transform to fit. A size without a purpose keeps the neighbors of the vectors as they are."""
        named = self.named_transform
        return None if self.resizes and isinstance(named, Auto) and named.purpose is None else named

    def check(self, sources: Sequence[Source] = (), *, pairs: str | None = None) -> None:
        """Refuse what does not go together, also with sources that were opened, and with the kind of the pairs."""
        for name in ("n_bytes", "loss"):
            if (value := getattr(self, name)) is not None and not math.isfinite(value):
                raise InputError(f"{option(name)} is not a finite number.", where="fit")
        own = self._parts()
        parts = own | self._parts_of(sources, own)
        if pairs is not None:
            parts[f"pairs of {'texts' if pairs == 'texts' else 'vectors'}"] = ""
        for each in EXCLUSIONS:
            left, right = each.left.split(", "), each.right.split(", ")
            these, those = ([parts[name] for name in side if name in parts] for side in (left, right))
            if these and those:
                every = [option(name) if name in _OPTIONS else name for name in right]
                sentence = each.sentence.format(
                    these=_listed(these), those=_listed(those), first=those[0], every=_listed(every), request=self
                )
                raise InputError(sentence, where="fit")

    def _parts(self) -> dict[str, str]:
        """Options that were given, and what they mean; each with its name in a message."""
        named, settings = self.named_transform, self.settings
        default = "whitening" if "strength" in settings else AUTO
        facts = {
            "transform": (option("transform"), self.transform not in (AUTO, default)),
            "no transform": (option("transform", NO_TRANSFORM), named is None),
            _NONLINEAR: (f"a {named.kind}" if needs_vectors(named) else "", needs_vectors(named)),
            "width of auto": (option("n_components"), isinstance(named, Auto) and named.n_components is not None),
            "inputs": (f"{[*self.inputs, ''][0]}", bool(self.inputs)),
            "no inputs": ("", not self.inputs),
            "no pairs": ("", self.pairs is None),
            "fit on pairs": ("", self.fits_pairs),
            "fit on inputs": ("", not self.fits_pairs),
            "only queries": (option("queries"), self.queries_only),
            "one process": ("", self.engine is None),
        }
        options = {name: option(name) for name in _OPTIONS if getattr(self, name) is not None}
        if self.fits_pairs and self.queries is not None:
            options["queries"] = f"a file of {option('queries')}"
        return (
            options
            | {name: option(name) for name in settings}
            | {name: each for name, (each, is_so) in facts.items() if is_so}
        )

    def _parts_of(self, sources: Sequence[Source], own: Mapping[str, str]) -> dict[str, str]:
        """What sources hold, and what it means for options; each with its name in a message."""
        texts = [source.name for source in sources if source.kind == "texts"]
        others = [source for source in sources if source.kind != "texts"]
        moments = [source for source in others if source.kind == "moments"]
        parts = {"moments": "moments"} if moments else {}
        if self.fits_pairs:
            return parts
        if texts:
            parts["inputs of texts"] = f"{texts[0] if others else ', '.join(texts)} holds texts"
        if others:
            parts["inputs of vectors"] = f"{others[0].name} holds vectors"
            facts = {
                "erase of vectors": (f"{option('erase')} of vectors", self.erase is not None),
                "nonlinear of vectors": (own.get(_NONLINEAR, ""), _NONLINEAR in own),
                "transform of vectors": ("", not isinstance(self.named_transform, Auto)),
                "moments alone": ("", len(moments) == len(others)),
            }
            parts |= {name: each for name, (each, is_so) in facts.items() if is_so}
        return parts


_OPTIONS = [each.name for each in fields(FitRequest) if each.default is None and each.name != "column"]


def _listed(names: Sequence[str]) -> str:
    """Names as in a sentence: "a, b and c"."""
    return " and ".join([", ".join(names[:-1])] * (len(names) > 1) + list(names[-1:]))


class FitInputs:
    """What all inputs have in common.

    `of_texts` is the column of the texts of vectors in another file; `named` gives the addresses of files that were
    copied to be read.
    """

    def __init__(
        self,
        request: FitRequest,
        sources: Sequence[Source],
        say: Say,
        *,
        of_texts: str | None = None,
        named: Callable[[str], str] = str,
    ) -> None:
        self.request, self.sources, self.say, self.named = request, sources, say, named
        self.of_texts = of_texts

    @property
    def name(self) -> str:
        """The files, for the record."""
        return self.named(", ".join(source.name for source in self.sources))

    def load(self) -> SentenceEncoder:
        """The model as it was saved."""
        return load_model(self.request.model)

    def statistics(self, model: SentenceEncoder) -> tuple[SentenceEncoder, Statistics | None]:
        """The model with an encoder that is fitted, and statistics of its vectors; None if nothing else is fitted."""
        raise NotImplementedError

    def fitted(self, model: SentenceEncoder, statistics: Statistics) -> SentenceEncoder:
        """The model without what is erased, and with the transform."""
        return model.fitted_on_statistics(statistics, self.request.fitted_transform, report=self._say_likelihood)

    def sample(self, statistics: Statistics) -> Floats | None:
        """Vectors of the bare encoder, by which the space before and after is described."""
        return statistics.vectors

    def saved(self) -> None:
        """Remove what an interrupted fit would resume from."""

    def details(
        self, before: SentenceEncoder, after: SentenceEncoder, vectors: Floats | None, record: FitRecord | None
    ) -> dict[str, Any]:
        """Fields of a `FitResult` that only these inputs have; `vectors` are those of the sample before the fit."""
        raise NotImplementedError

    def _say_likelihood(self, point: FitProgress) -> None:
        bits = f"{point.held_out_bits:.4f} bits per dimension, held-out rows"
        self.say(f"{point.n_rows:,} of {point.n_total:,} rows: {bits}")
