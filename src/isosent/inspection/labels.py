"""A candidate in words for people who write no code."""

from isosent.selection.candidates import LEAVE, Candidate


def label_of(candidate: Candidate) -> str:
    """Write a candidate in words.

    Parameters
    ----------
    candidate : Candidate
        What auto may do.

    Returns
    -------
    str
        Its name and settings.

    Examples
    --------
    >>> label_of(Candidate("whitening", strength=0.5, n_components=64)), label_of(Candidate())
    ('whitening (strength 0.5, 64 dimensions)', 'leave it alone')
    """
    if candidate.name == LEAVE:
        return "leave it alone"
    settings = []
    if candidate.strength is not None:
        settings.append(f"strength {candidate.strength:g}")
    if candidate.n_components is not None:
        settings.append(f"{candidate.n_components} dimensions")
    name = candidate.name.replace("_", " ")
    return f"{name} ({', '.join(settings)})" if settings else name
