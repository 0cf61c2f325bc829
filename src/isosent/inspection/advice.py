"""One sentence that says what to do."""

from __future__ import annotations

from isosent.inspection.effect import Change, Effect
from isosent.inspection.labels import label_of
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
        kind = "texts" if is_text else "vectors"
        return f"Nothing can be said yet: {counts.n_used} usable, differing {kind} are too few; give more of them."
    sentence = _verdict(choice, effect)
    if counts.rows_per_dim < _FEW_ROWS_PER_DIM:
        sentence += f" (only {counts.rows_per_dim:.1f} rows a dimension: a fit needs more)"
    return f"{sentence}."


def _verdict(choice: AutoChoice, effect: Effect | None) -> str:
    label, leave = label_of(choice.chosen), "Leave these vectors alone"
    if choice.chosen.name == LEAVE:
        if effect is None or effect.ranked.verdict != "loss":
            return f"{leave}: auto sees nothing to gain"
        return f"{leave}: {effect.label} would tell held-out pairs apart {_by(effect.ranked)}"
    if effect is None:
        return f"Try {label}, and test it on pairs of your own: its effect could not be measured here"
    found, ranked = effect.found, effect.ranked
    verdicts = {found.verdict, ranked.verdict}
    if verdicts == {"gain", "loss"}:
        return (
            f"Test {label} on pairs of your own before you fit it: it finds the nearest text {_more(found)}, "
            f"but tells pairs apart {_by(ranked)}"
        )
    if ranked.verdict == "gain":
        return f"Fit {label}: it tells held-out pairs apart {_by(ranked)}"
    if found.verdict == "gain":
        return f"Fit {label}: it finds the nearest held-out text {_more(found)}"
    change = (
        f"tells held-out pairs apart {_by(ranked)}" if ranked.verdict == "loss" else "gains nothing that can be told"
    )
    return f"{leave}: auto would choose {label}, which {change}"


def _by(change: Change) -> str:
    return f"{'better' if change.difference > 0 else 'worse'} by {_points(change)}"


def _more(change: Change) -> str:
    return f"{'more' if change.difference > 0 else 'less'} often by {_points(change)}"


def _points(change: Change) -> str:
    size = 100 * abs(change.difference)
    return f"{size:.{1 if size >= 0.95 else 2}f} points"
