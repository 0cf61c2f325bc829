"""The other encoders that need no training, one sentence at a time, in float64. Words are rows, texts are lists of ids.

SIF: Arora et al. 2017, section 3. uSIF: Ethayarajh 2018, section 3. Power means: Rueckle et al. 2018, section 3.
Zipfian whitening: Yokoi et al. 2024, arXiv 2411.00680, algorithm 1.
"""

import numpy as np


def mean(words):
    """Sum of the words over their number."""
    return sum(words) / len(words)


def sif_vector(words, probabilities, a=1e-3):
    """Smooth inverse frequency, before anything is removed."""
    total = np.zeros(words.shape[1])
    for word, probability in zip(words, probabilities, strict=True):
        total += a / (a + probability) * word
    return total / len(words)


def usif_a(vocabulary_probabilities, mean_length):
    """The constant of uSIF, from the vocabulary and the mean number of words a sentence."""
    vocab_size = len(vocabulary_probabilities)
    threshold = 1 - (1 - 1 / vocab_size) ** mean_length
    alpha = sum(probability > threshold for probability in vocabulary_probabilities) / vocab_size
    return (1 - alpha) / (alpha * 0.5 * vocab_size)


def usif_vector(words, probabilities, a):
    """Mean of weighted words, each coordinate divided by its length over the sentence, before anything is removed."""
    scaled = np.zeros(words.shape)
    for coordinate in range(words.shape[1]):
        length = np.linalg.norm(words[:, coordinate])
        scaled[:, coordinate] = words[:, coordinate] / length if length else 0.0
    total = np.zeros(words.shape[1])
    for word, probability in zip(scaled, probabilities, strict=True):
        total += a / (0.5 * a + probability) * word
    return total / len(words)


def remove_components(sentences, n_components, *, weighted=False, fitted_on=None):
    """Take away the first singular vectors; weighted, each by its share of the squared singular values (uSIF)."""
    _, sizes, directions = np.linalg.svd(sentences if fitted_on is None else fitted_on, full_matrices=False)
    squares = sizes[:n_components] ** 2
    shares = squares / squares.sum() if weighted else np.ones(n_components)
    left = np.array(sentences, np.float64)
    for share, direction in zip(shares, directions[:n_components], strict=True):
        left -= share * np.outer(left @ direction, direction)
    return left


def power_mean(words, power):
    """Power mean of each coordinate; a root of a negative mean is taken in the complex numbers, its real part kept."""
    if np.isinf(power):
        return words.max(axis=0) if power > 0 else words.min(axis=0)
    return ((words.astype(np.complex128) ** power).mean(axis=0) ** (1 / power)).real


def z_normalized(sentences, fitted_on):
    """Each coordinate minus its mean over a corpus, over its standard deviation there."""
    return (sentences - fitted_on.mean(axis=0)) / fitted_on.std(axis=0)


def zipfian_whitened(word_vectors, probabilities):
    """Word vectors with mean 0 and covariance 1 under the probabilities, which are brought to the sum 1."""
    probabilities = probabilities / probabilities.sum()
    centered = word_vectors - probabilities @ word_vectors
    _, sizes, directions = np.linalg.svd(np.sqrt(probabilities)[:, None] * centered, full_matrices=False)
    return centered @ directions.T / sizes
