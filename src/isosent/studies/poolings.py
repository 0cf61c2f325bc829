"""How tokens are pooled, crossed with which layers and whether to whiten: table 1 of WhiteningBERT."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial

from isosent.encoders.base import Progress
from isosent.evaluation.sts_files import read_sts
from isosent.model import SentenceEncoder
from isosent.network.reading import SBERT_WK, canonical_pooling
from isosent.numeric.pooling import POOLINGS
from isosent.numeric.sbert_wk import sbert_wk_layers
from isosent.studies.reading_cells import Measured, ReadingCell
from isosent.studies.readings import place_tasks, plain_transformer, score_reading, side_by_side

STUDIED = ("cls", *(name for name in POOLINGS if name != "cls"), SBERT_WK)


def study_pooling(
    model: SentenceEncoder,
    folder: str | os.PathLike[str],
    *,
    name: str,
    tasks: Sequence[str] | None = None,
    sickr: str = "full",
    poolings: Sequence[str] = STUDIED,
    progress: Callable[[int], Progress] | None = None,
) -> list[ReadingCell]:
    """Score every pooling of the last layer, of layers 1 and the last, and of the last two.

    Parameters
    ----------
    model : SentenceEncoder
        A transformer with nothing fitted behind it. Its layers, its pooling and what follows the pooling (Dense,
        Normalize) are set aside.
    folder : path-like
        Where the original files lie, see `read_sts`.
    name : str
        What the model is called in the results.
    tasks : sequence of str, optional
        As for `evaluate_sts`.
    sickr : {"full", "test"}, default "full"
        As for `evaluate_sts`.
    poolings : sequence of str, default all
        Which poolings. ``sbert_wk``, which fuses layers itself, has the layers of its own paper.
    progress : callable, optional
        As for `evaluate_sts`; a sentence counts once for each task that it stands in.

    Returns
    -------
    list of ReadingCell
        Task by task: one a pooling, set of layers and transform, each as it is, whitened, and as "auto" chooses.

    Raises
    ------
    InputError
        If the model is another one, a pooling does not exist, or as `evaluate_sts` does.

    Notes
    -----
    The network runs once over the sentences of each task; all readings are taken from that pass.

    References
    ----------
    Huang et al. 2021, *WhiteningBERT: An Easy Unsupervised Sentence Embedding Approach*, arXiv 2104.01767, table 1.
    """
    encoder = plain_transformer("study pooling", model, name)
    names = dict.fromkeys(canonical_pooling(pooling) for pooling in poolings)
    wanted = [(pooling, layers) for pooling in names for layers in _layer_sets(pooling, encoder.n_layers)]
    readings = [encoder.reading(",".join(map(str, layers)), pooling) for pooling, layers in wanted]
    found = read_sts(folder, tasks=tasks, sickr=sickr)
    placed_texts = [place_tasks([task]) for task in found]
    tell = None if progress is None else progress(sum(len(texts) for texts, _ in placed_texts))
    measured, cells = Measured(name, encoder.reference, sickr), []
    for texts, (placed,) in placed_texts:
        vectors = encoder.read(texts, readings, progress=tell)
        done = side_by_side(vectors, partial(score_reading, placed))
        for (pooling, layers), (_, scores) in zip(wanted, done, strict=True):
            cells += measured.cells(pooling, layers, placed.task, scores)
    return cells


def _layer_sets(pooling: str, n_layers: int) -> list[tuple[int, ...]]:
    if pooling == SBERT_WK:
        return [sbert_wk_layers(n_layers)]
    return list(dict.fromkeys([(n_layers,), (1, n_layers), (n_layers - 1, n_layers)]))
