"""What the commands ``train ...`` print: the data before the first step, and the scores after the last."""

from collections.abc import Iterator, Sequence

from rich.table import Table

from isosent.evaluation.tables import x100
from isosent.training.examples import Examples
from isosent.training.job import Scores, TrainingResult
from isosent.training.repeating import spread

_SHOWN_CHARACTERS = 60


def examples_tables(examples: Examples) -> Iterator[Table]:
    """Lay out what the data hold, and their first rows.

    Parameters
    ----------
    examples : Examples
        The data.

    Yields
    ------
    Table
        Files, numbers and classes; then three rows under the columns that they were read from.
    """
    facts = Table(show_header=False, title=f"{examples.objective}: {len(examples):,} examples", title_justify="left")
    for source in examples.sources:
        facts.add_row(str(source.path), f"{source.n_rows:,} rows, {source.encoding}")
    for reason, count in examples.dropped.items():
        facts.add_row(f"dropped: {reason}", f"{count:,}")
    for name, count in examples.label_counts.items():
        facts.add_row(name, f"{count:,} ({count / len(examples):.1%})")
    for name, value in examples.score_summary.items():
        facts.add_row(f"score, {name}", f"{value:.3f}")
    yield facts
    rows = Table(title="first rows", title_justify="left")
    for name, source_name in examples.source_columns.items():
        rows.add_column(name if source_name == name else f"{name} (from {source_name})")
    for row in examples.sample():
        rows.add_row(*(_shortened(str(value)) for value in row.values()))
    yield rows


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"


def scores_table(results: Sequence[TrainingResult], *, seeded: bool) -> Table:
    """Lay out scores before and after.

    Parameters
    ----------
    results : sequence of TrainingResult
        Trainings.
    seeded : bool
        Whether they lie in folders of their seeds, and are one row together.

    Returns
    -------
    Table
        Spearman x100, a row a model and set.
    """
    groups: dict[str, list[TrainingResult]] = {}
    for result in results:
        groups.setdefault(str(result.folder.parent if seeded else result.folder), []).append(result)
    with_transform = any(s.with_transform for result in results for s in result.scores.values())
    seeds = max(map(len, groups.values()))
    caption = "Spearman x100" + (f"; mean and standard deviation of {seeds} seeds" if seeds > 1 else "")
    table = Table(caption=caption, caption_justify="left")
    for name in ("model", "set"):
        table.add_column(name)
    for name in ("before", "after", *(["with transform"] if with_transform else []), "step kept", "seconds"):
        table.add_column(name, justify="right")
    for name, group in groups.items():
        steps = ", ".join(str(result.kept_step) for result in group) + f" of {group[0].n_steps}"
        seconds = f"{sum(result.elapsed_s for result in group):,.0f}"
        for of in group[0].scores or ["-"]:
            scores = [result.scores[of] for result in group if of in result.scores]
            cells = _cells(scores, with_transform=with_transform)
            table.add_row(name, of, *cells, steps, seconds)
    return table


def notes(results: Sequence[TrainingResult]) -> Iterator[str]:
    """Say what a table of scores does not say aloud.

    Parameters
    ----------
    results : sequence of TrainingResult
        Trainings.

    Yields
    ------
    str
        What a fit at the end chose; where training, or that fit, made a score worse; that nothing was scored.
    """
    for result in results:
        if result.model.fits and result.model.fits[-1].choice:
            yield f"{result.folder}: auto chose {result.model.fits[-1].choice['reason']}"
        for name, of in result.scores.items():
            if of.after.spearman < of.before.spearman:
                loss = x100(of.before.spearman - of.after.spearman)
                yield f"warning: {result.folder}: training made the score on {name} worse, by {loss}"
            if of.with_transform is not None and of.with_transform.spearman < of.after.spearman:
                loss = x100(of.after.spearman - of.with_transform.spearman)
                yield f"warning: {result.folder}: the transform made the score on {name} worse, by {loss}"
    if not any(result.scores for result in results):
        yield "nothing was scored; --dev or --test names scored pairs"


def _cells(scores: Sequence[Scores], *, with_transform: bool) -> list[str]:
    """Scores before, after, and with what was fitted, over the seeds."""
    columns = [[s.before for s in scores], [s.after for s in scores]]
    if with_transform:
        columns.append([s.with_transform for s in scores if s.with_transform])
    return [_over_seeds([score.spearman for score in column]) for column in columns]


def _over_seeds(values: Sequence[float]) -> str:
    if not values:
        return "-"
    over = spread(values)
    return x100(over.mean) if len(values) == 1 else f"{x100(over.mean)} ± {x100(over.deviation)}"
