"""How far to even out variances, told from the moments alone."""

from isosent.numeric.moments import Moments


def spectral_strength(moments: Moments) -> float:
    """Strength of whitening that the spectrum suggests.

    Parameters
    ----------
    moments : Moments
        Of the vectors.

    Returns
    -------
    float
        In [0, 1].
    """
    return 0.5
