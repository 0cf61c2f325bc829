"""Published STS scores, to stand beside measured ones (Spearman x100)."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isosent.evaluation.sts_files import TASKS


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One row of a published table.

    Parameters
    ----------
    label : str
        Model and source.
    aggregation : str
        How the subsets were put together, which decides what it can be compared with.
    scores : tuple of float
        STS12, 13, 14, 15, 16, STS-B, SICK-R.
    reference : str
        Regular expression that the model's reference matches in lower case.
    options : mapping of str to str
        Regular expressions that options of the model must match as a whole; one that it lacks is empty.
    sickr : {"full", "test"}
        Pairs that the score of SICK-R is over.
    transform : str or None
        Transform that is required; None for none.
    fit : str or None
        What the transform was fitted on.
    n_components : int or None
        Width that is required behind a transform; None for the full one.
    """

    label: str
    aggregation: str
    scores: tuple[float, ...]
    reference: str
    options: Mapping[str, str]
    sickr: str
    transform: str | None = None
    fit: str | None = None
    n_components: int | None = None

    def scores_of(self, tasks: Iterable[str], sickr: str) -> dict[str, float]:
        """Return the scores of some tasks, without SICK-R where ours is over other pairs.

        Parameters
        ----------
        tasks : iterable of str
            Among `TASKS`.
        sickr : {"full", "test"}
            Pairs of SICK-R that ours is over.

        Returns
        -------
        dict of str to float
            Spearman x100, in the order of `tasks`.
        """
        scores = dict(zip(TASKS, self.scores, strict=True))
        return {task: scores[task] for task in tasks if task != "SICKR" or sickr == self.sickr}


_BERT_BASE = r"^hf:(.*/)?bert-base-uncased(@.*)?$"
_ROBERTA_BASE = r"^hf:(.*/)?roberta-base(@.*)?$"
_FIRST_LAST = {"layers": "1,12", "pooling": "mean"}
_EMBEDDINGS_LAST = {"layers": "0,12", "pooling": "mean"}
_LAST_MEAN, _LAST_CLS = {"layers": "12", "pooling": "mean"}, {"layers": "12", "pooling": "cls"}
_GLOVE = r"^words:[^,]*glove\.840b[^,]*$"
_WORDS = {"lowercase": "true", "tokenizer": "wordpunct", "stop_words": "keep"}
_COUNTS_OF_WIKIPEDIA = {"frequencies": r".*enwiki[^/]*"}

PUBLISHED: Sequence[PublishedRow] = (
    PublishedRow(
        "all-MiniLM-L6-v2, MTEB",
        "all",
        (72.37, 80.60, 75.59, 85.39, 78.99, 82.03, 77.58),
        r"^hf:(.*/)?(gt_)?all[-_]minilm[-_]l6[-_]v2(/model)?(@.*)?$",
        options={"layers": "6", "pooling": "mean"},
        sickr="full",
    ),
    PublishedRow(
        "GloVe 840B mean, Yokoi et al. 2024",
        "all",
        (56.46, 50.41, 51.13, 58.60, 49.03, 46.17, 57.01),
        _GLOVE,
        options=_WORDS | {"weighting": "mean", "zipfian": "(false)?"},
        sickr="full",
    ),
    PublishedRow(
        "GloVe 840B SIF with removal, Yokoi et al. 2024",
        "all",
        (60.23, 68.78, 62.39, 67.26, 61.85, 58.70, 56.91),
        _GLOVE,
        options=_WORDS
        | _COUNTS_OF_WIKIPEDIA
        | {"weighting": "sif", "a": "0.001", "n_components": "1", "zipfian": "(false)?"},
        sickr="full",
    ),
    PublishedRow(
        "GloVe 840B Zipfian whitening, Yokoi et al. 2024",
        "all",
        (57.76, 72.22, 67.04, 76.80, 71.72, 66.92, 61.80),
        _GLOVE,
        options=_WORDS | _COUNTS_OF_WIKIPEDIA | {"weighting": "mean", "zipfian": "true"},
        sickr="full",
    ),
    PublishedRow(
        "BERT-base first-last-avg, Su et al. 2021",
        "wmean",
        (57.86, 61.97, 62.49, 70.96, 69.76, 59.04, 63.75),
        _BERT_BASE,
        options=_FIRST_LAST,
        sickr="test",
    ),
    PublishedRow(
        "BERT-base whitening(target), Su et al. 2021",
        "wmean",
        (63.62, 73.02, 69.23, 74.52, 72.15, 71.34, 60.6),
        _BERT_BASE,
        options=_FIRST_LAST,
        sickr="test",
        transform="whitening",
        fit="target",
    ),
    PublishedRow(
        "BERT-base whitening-256(target), Su et al. 2021",
        "wmean",
        (63.89, 73.76, 69.08, 74.59, 74.40, 71.43, 62.2),
        _BERT_BASE,
        options=_FIRST_LAST,
        sickr="test",
        transform="whitening",
        fit="target",
        n_components=256,
    ),
    PublishedRow(
        "BERT-base [CLS], last layer, list of Awesome-Sentence-Embedding",
        "all",
        (21.54, 32.11, 21.28, 37.89, 44.24, 20.30, 42.42),
        _BERT_BASE,
        options=_LAST_CLS,
        sickr="test",
    ),
    PublishedRow(
        "BERT-base [CLS], last layer, BERT-whitening-pytorch",
        "wmean",
        (30.62, 26.38, 27.65, 36.05, 51.80, 20.29, 42.42),
        _BERT_BASE,
        options=_LAST_CLS,
        sickr="test",
    ),
    PublishedRow(
        "BERT-base mean, last layer, list of Awesome-Sentence-Embedding",
        "all",
        (30.87, 59.89, 47.73, 60.29, 63.73, 47.29, 58.22),
        _BERT_BASE,
        options=_LAST_MEAN,
        sickr="test",
    ),
    PublishedRow(
        "BERT-base embeddings and last layer, Gao et al. 2021 (SimCSE)",
        "all",
        (39.70, 59.38, 49.67, 66.03, 66.19, 53.87, 62.06),
        _BERT_BASE,
        options=_EMBEDDINGS_LAST,
        sickr="test",
    ),
    PublishedRow(
        "BERT-base whitening(target), Gao et al. 2021 (SimCSE)",
        "all",
        (42.88, 77.77, 66.28, 63.60, 67.58, 71.34, 60.40),
        _BERT_BASE,
        options=_FIRST_LAST,
        sickr="test",
        transform="whitening",
        fit="target",
    ),
    PublishedRow(
        "RoBERTa-base [CLS], last layer, list of Awesome-Sentence-Embedding",
        "all",
        (16.67, 45.57, 30.36, 55.08, 56.98, 45.41, 61.89),
        _ROBERTA_BASE,
        options=_LAST_CLS,
        sickr="test",
    ),
    PublishedRow(
        "RoBERTa-base mean, last layer, list of Awesome-Sentence-Embedding",
        "all",
        (32.11, 56.33, 45.22, 61.34, 61.98, 54.53, 62.03),
        _ROBERTA_BASE,
        options=_LAST_MEAN,
        sickr="test",
    ),
    PublishedRow(
        "RoBERTa-base embeddings and last layer, Gao et al. 2021 (SimCSE)",
        "all",
        (40.88, 58.74, 49.07, 65.63, 61.48, 58.55, 61.63),
        _ROBERTA_BASE,
        options=_EMBEDDINGS_LAST,
        sickr="test",
    ),
)


def published_rows(model: Mapping[str, Any], protocol: Mapping[str, Any]) -> list[PublishedRow]:
    """Published rows for the same model under the same transform.

    Parameters
    ----------
    model, protocol : mapping
        Those of an `STSResult`.

    Returns
    -------
    list of PublishedRow
        Possibly none.

    Examples
    --------
    >>> options = {"lowercase": "true", "tokenizer": "wordpunct", "stop_words": "keep", "weighting": "mean"}
    >>> model = {"reference": "words:glove.840B.300d.txt", "options": options, "fits": []}
    >>> protocol = {"transform": None, "fit": None, "parameters": {}, "missing_subsets": {}}
    >>> [row.label for row in published_rows(model, protocol)]
    ['GloVe 840B mean, Yokoi et al. 2024']
    """
    if model["fits"] or protocol["missing_subsets"] or protocol["parameters"].get("strength", 1.0) != 1.0:
        return []
    reference = model["reference"].lower()
    return [
        row
        for row in PUBLISHED
        if re.search(row.reference, reference)
        and all(re.fullmatch(pattern, model["options"].get(name, "")) for name, pattern in row.options.items())
        and row.transform == protocol["transform"]
        and (row.transform is None or row.fit == protocol["fit"])
        and row.n_components == protocol["parameters"].get("n_components")
    ]
