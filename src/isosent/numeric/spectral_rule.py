"""Whether vectors should be whitened, told from their moments alone."""

import numpy as np

from isosent.numeric.moments import Moments

LARGEST_MEAN_SHARE = 0.2
MILD_STRENGTH = 0.5


def mean_share(moments: Moments) -> float:
    r"""Share of the mean in the mean squared length of the vectors.

    Parameters
    ----------
    moments : Moments
        Of the vectors.

    Returns
    -------
    float
        :math:`\lVert \mu \rVert^2 / E \lVert x \rVert^2`, in [0, 1]: for unit vectors, the mean cosine of random pairs;
        0 where all vectors are zero.

    Examples
    --------
    >>> import numpy as np
    >>> mean_share(Moments.from_rows(np.array([[1.0, 1.0], [1.0, -1.0]])))
    0.5
    """
    of_mean = float(moments.mean @ moments.mean)
    total = of_mean + float(np.trace(moments.covariance))
    return of_mean / total if total else 0.0


def spectral_strength(moments: Moments) -> float:
    """Strength of whitening that the moments suggest.

    Parameters
    ----------
    moments : Moments
        Of the vectors.

    Returns
    -------
    float
        1/2 where the mean holds more than a fifth of the squared length, as raw transformers and word vectors have it;
        otherwise 0, because variances of well-trained vectors carry meaning.
    """
    return MILD_STRENGTH if mean_share(moments) > LARGEST_MEAN_SHARE else 0.0
