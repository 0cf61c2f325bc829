"""One sentence that says what to do."""

from __future__ import annotations

from isosent.calibration import FEWEST_PAIRS
from isosent.inspection.effect import Change, Effect
from isosent.inspection.survey import RowCounts
from isosent.selection.candidates import LEAVE, AutoChoice

_FEW_ROWS_PER_DIM = 2


def advise(counts: RowCounts, choice: AutoChoice | None, effect: Effect | None, *, is_text: bool) -> str:
    """Say what to do with the vectors.

    Parameters
    ----------
    counts : RowCounts
        Rows, good and bad.
    choice : AutoChoice or None
        What auto would choose.
    effect : Effect or None
        What that does to held-out pairs.
    is_text : bool
        Whether the vectors were made from texts here.

    Returns
    -------
    str
        One sentence.
    """
    if choice is None:
        return _nothing(counts, "texts" if is_text else "vectors")
    sentence = _verdict(choice, effect)
    if counts.rows_per_dim < _FEW_ROWS_PER_DIM:
        sentence += f" (only {counts.rows_per_dim:.1f} rows a dimension: a fit needs more)"
    return f"{sentence}."


def _nothing(counts: RowCounts, kind: str) -> str:
    if counts.n_pairs < FEWEST_PAIRS:
        return f"Nothing can be said yet: {counts.n_used} usable {kind} are too few; give more of them."
    if counts.n_duplicates == counts.n_used - 1:
        return f"Nothing can be said yet: all {counts.n_used} usable vectors are equal; give {kind} that differ."
    return f"Nothing can be said yet: no variance of the {counts.n_used} usable vectors can be told from zero."


def _verdict(choice: AutoChoice, effect: Effect | None) -> str:
    label, leave = str(choice.chosen), "Leave these vectors alone"
    if choice.chosen.name == LEAVE:
        if effect is None:
            return f"{leave}: auto sees nothing to gain"
        gains, losses = (_changes(effect, verdict, ("find", "tell")) for verdict in ("gain", "loss"))
        if losses:
            return f"{leave}: {effect.label} would {losses}{f', though it would {gains}' if gains else ''}"
        if gains:
            return (
                f"Auto would leave these vectors alone, but {effect.label} would {gains} in this test: "
                "try it on pairs of your own"
            )
        return f"{leave}: auto sees nothing to gain"
    if effect is None:
        return f"Try {label}, and test it on pairs of your own: its effect could not be measured here"
    gains, losses = (_changes(effect, verdict, ("finds", "tells")) for verdict in ("gain", "loss"))
    if gains and losses:
        return f"Test {label} on pairs of your own before you fit it: it {gains}, but {losses}"
    if gains:
        return f"Fit {label}: it {gains}"
    return f"{leave}: auto would choose {label}, which {losses or 'gains nothing that can be told'}"


def _changes(effect: Effect, verdict: str, verbs: tuple[str, str]) -> str:
    """What the map gains, or loses, in words; empty where it does not."""
    found = f"{verbs[0]} the nearest held-out text {_more(effect.found)}"
    ranked = f"{verbs[1]} held-out pairs apart {_by(effect.ranked)}"
    measured = ((effect.found, found), (effect.ranked, ranked))
    return " and ".join(words for change, words in measured if change.verdict == verdict)


def _by(change: Change) -> str:
    return f"{'better' if change.difference > 0 else 'worse'} by {_points(change)}"


def _more(change: Change) -> str:
    return f"{'more' if change.difference > 0 else 'less'} often by {_points(change)}"


def _points(change: Change) -> str:
    size = 100 * abs(change.difference)
    return f"{size:.{1 if size >= 0.95 else 2}f} points"
