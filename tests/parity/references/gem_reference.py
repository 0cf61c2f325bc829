"""GEM as Yang et al. 2019 (arXiv 1810.00438, algorithm 1) print it: one sentence, one word at a time, in float64.

Slow and plain on purpose: Gram-Schmidt over the columns of each window, a singular value decomposition of each
sentence. Words are rows. What the paper leaves open is decided here by three rules.

Rank: a column whose residual is at most `SMALL` of its length adds no direction; a word of which that is true has
r = 0 and q = 0. Sign: each left singular vector of a sentence points to the side of the sum of its words, and where
that decides nothing to the side of the first word with a share in it. Window: `window` words on each side, clipped at
the ends of the sentence.
"""

import numpy as np

SMALL = 1e-6
ALL_SCORES = ("novelty", "significance", "uniqueness")


def coarse_vector(words, power=3.0):
    """Equation 7: the left singular vectors of a sentence, times the powers of their singular values."""
    words = np.asarray(words, np.float64)
    if not len(words):
        return np.zeros(words.shape[1])
    left, sizes, right = np.linalg.svd(words.T, full_matrices=False)
    coarse = np.zeros(words.shape[1])
    for direction, size, shares in zip(left.T, sizes, right, strict=True):
        coarse += _sign(direction, size, shares, words) * size**power * direction
    return coarse


def _sign(direction, size, shares, words):
    along = direction @ words.sum(axis=0)
    if abs(along) <= SMALL * size * np.sqrt(len(words)):
        along = shares[np.argmax(np.abs(shares) > SMALL)]
    return 1.0 if along >= 0 else -1.0


def principal_vectors(coarse, n_candidates=45):
    """Principal vectors (as rows) and singular values of the coarse vectors of a corpus, not centred."""
    _, sizes, directions = np.linalg.svd(np.asarray(coarse, np.float64), full_matrices=False)
    return directions[:n_candidates], sizes[:n_candidates]


def gem_vector(
    words,
    vectors,
    singular_values,
    *,
    window=7,
    n_removed=17,
    removal="sdr",
    scores=ALL_SCORES,
    significance="columns",
    ranking="weighted",
    uniqueness="published",
):
    """Vector of one sentence.

    `uniqueness` is "published" or "scaled": singular values as shares of the largest, and no division by their number.
    """
    words = np.asarray(words, np.float64)
    rows = _selected(words, vectors, singular_values, n_removed, removal, ranking)
    removed = vectors[rows]
    sizes = singular_values[rows] / (singular_values[0] if uniqueness == "scaled" else len(rows))
    sentence = np.zeros(words.shape[1])
    for position, word in enumerate(words):
        new, residual, n_columns = _novel_part(words, position, window)
        length = np.linalg.norm(word)
        alphas = {
            "novelty": np.exp(residual / length) if length else 1.0,
            "significance": residual / (n_columns if significance == "columns" else 2 * window + 1),
            "uniqueness": np.exp(-np.linalg.norm(sizes * (removed @ new))),
        }
        sentence += sum(alphas[score] for score in scores) * word
    return sentence if removal == "none" else sentence - removed.T @ (removed @ sentence)


def _selected(words, vectors, singular_values, n_removed, removal, ranking):
    """Rows of the principal vectors that count for this sentence."""
    if removal == "sir":
        return np.arange(min(n_removed, len(vectors)))
    relevance = np.linalg.norm(words @ vectors.T, axis=0)
    if ranking == "weighted":
        relevance *= singular_values
    return np.argsort(-relevance, kind="stable")[:n_removed]


def _novel_part(words, position, window):
    """What a word adds to its window: unit direction, length, and the number of columns, its own included."""
    first, last = max(position - window, 0), min(position + window, len(words) - 1)
    columns = [*(words[row] for row in range(first, last + 1) if row != position), words[position]]
    basis, rank = np.zeros((len(columns), words.shape[1])), 0
    for column in columns:
        residual = column
        for _ in range(2):  # the second pass takes away what rounding left of the first
            residual = residual - (basis[:rank] @ residual) @ basis[:rank]
        length = np.linalg.norm(residual)
        is_new = length > SMALL * np.linalg.norm(column)
        if is_new:
            basis[rank] = residual / length
            rank += 1
    return (basis[rank - 1], length, len(columns)) if is_new else (np.zeros(words.shape[1]), 0.0, len(columns))
