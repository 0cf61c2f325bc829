"""SBERT-WK as Wang & Kuo 2020 (arXiv 2002.06652, section IV) and their code have it: one text, one token, one layer at
a time, in float64, with a QR factorization of each window. No padding. Layers are rows of a token, lowest first.

What both leave open is decided here by four rules. Rank: a neighbour whose residual behind the ones before it is at
most `SMALL_RESIDUAL` of its length adds no direction; a layer of which that is true has no novelty. Zero: a layer with
the zero vector weighs nothing. Alignment: at least `LEAST_ALIGNMENT`. Nothing to tell tokens apart, no variance above
`SMALL_CHANGE` squared: they weigh the same.
"""

import numpy as np

SMALL_RESIDUAL = 1e-3
SMALL_CHANGE = 1e-6
LEAST_ALIGNMENT = 0.01


def cosine(a, b):
    """Cosine of two vectors; 0 if one of them is zero."""
    lengths = np.linalg.norm(a) * np.linalg.norm(b)
    return a @ b / lengths if lengths > 0 else 0.0


def factors(rows):
    """QR factors of the rows as columns, with zeros below them where there are more columns than dimensions."""
    columns = np.array(rows).T
    return np.linalg.qr(np.vstack([columns, np.zeros((columns.shape[1], columns.shape[1]))]))


def independent(neighbors):
    """The neighbours that are not in the span of those before them."""
    kept = []
    for vector in neighbors:
        length = np.linalg.norm(vector)
        if length > 0 and abs(factors([*kept, vector])[1][-1, -1]) > SMALL_RESIDUAL * length:
            kept.append(vector)
    return kept


def alignment_and_novelty(token, layer, window):
    """Weights of a layer, before they become shares."""
    vector = token[layer]
    length = np.linalg.norm(vector)
    if length == 0:
        return 0.0, 0.0
    neighbors = [token[i] for i in range(len(token)) if i != layer and abs(i - layer) <= window]
    q, r = factors([*independent(neighbors), vector])
    residual = abs(r[-1, -1]) if abs(r[-1, -1]) > SMALL_RESIDUAL * length else 0.0
    projected = (q[:, :-1] @ r[:-1, -1])[: len(vector)]
    alignment = max(LEAST_ALIGNMENT, np.mean([cosine(projected, neighbor) for neighbor in neighbors]))
    n_columns = len(neighbors) + 1
    return 1 / (2 * n_columns * alignment), residual / length


def unified_token(token, window):
    """One vector out of the layers of a token."""
    alignment, novelty = np.array([alignment_and_novelty(token, layer, window) for layer in range(len(token))]).T
    if not alignment.any():
        return np.zeros(token.shape[1])
    weights = alignment / alignment.sum()
    if novelty.any():
        weights = weights + novelty / novelty.sum()
    return weights / weights.sum() @ token


def importance(token):
    """Variance of the cosines of neighbouring layers."""
    return np.var([cosine(token[layer], token[layer + 1]) for layer in range(len(token) - 1)])


def sbert_wk_vector(hidden_states, *, window=2):
    """Vector of one text, from hidden states of shape (n_layers, n_tokens, dim); the last token is left out."""
    tokens = np.asarray(hidden_states, np.float64).transpose(1, 0, 2)
    if len(tokens) > 1:
        tokens = tokens[:-1]
    weights = np.array([importance(token) for token in tokens])
    weights[weights <= SMALL_CHANGE**2] = 0.0
    if not weights.any():
        weights[:] = 1.0
    total = np.zeros(tokens.shape[2])
    for weight, token in zip(weights, tokens, strict=True):
        total += weight / weights.sum() * unified_token(token, window)
    return total
