"""Results as people read them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.table import Table

from isosent.cli.terminal import err, out
from isosent.demo.run import DEMO_STRENGTH, DemoReport
from isosent.encoders.given import GIVEN
from isosent.evaluation.tables import x100
from isosent.numeric.isotropy import SpaceReport
from isosent.studies.auto import ROWS, AutoCell, AutoVerdict
from isosent.studies.gem import GemCell
from isosent.transforms.base import FitProgress

_SPACE_ROWS: tuple[tuple[str, Callable[[SpaceReport], str]], ...] = (
    ("mean cosine of random pairs", lambda space: f"{space.mean_cosine:.4f}"),
    ("effective rank", lambda space: f"{space.effective_rank:.1f}"),
    ("dimensions", lambda space: f"{space.dim}"),
    ("bytes per vector", lambda space: f"{space.size_bytes}"),
)


def change_table(before: SpaceReport, after: SpaceReport) -> Table:
    """Lay two vector spaces side by side.

    Parameters
    ----------
    before, after : SpaceReport
        The spaces.

    Returns
    -------
    Table
        One row a figure.
    """
    table = Table("", "before", "after")
    for name, of in _SPACE_ROWS:
        table.add_row(name, of(before), of(after))
    return table


def choice_table(choice: Mapping[str, Any]) -> Table:
    """Lay out what "auto" weighed, what it chose, and why.

    Parameters
    ----------
    choice : mapping
        What `AutoChoice.to_json` gives.

    Returns
    -------
    Table
        One row a candidate.
    """
    measured = any(scored["score"] is not None for scored in choice["candidates"])
    table = Table("candidate", *(("keeps meaning", "separates") if measured else ()), "", caption_justify="left")
    for scored in choice["candidates"]:
        figures = [scored["score"], scored["separation"]] if measured else []
        mark = "chosen" if scored["candidate"] == choice["chosen"] else ""
        table.add_row(scored["candidate"], *("" if figure is None else f"{figure:.2f}" for figure in figures), mark)
    table.caption = f"auto chose: {choice['chosen']}\nbecause {choice['reason']}"
    return table


def print_likelihood(seen: FitProgress) -> None:
    """Print how far the fit of a flow is.

    Parameters
    ----------
    seen : FitProgress
        What it reports.
    """
    err.print(f"{seen.n_rows:,} of {seen.n_total:,} rows: {seen.held_out_bits:.4f} bits per dimension, held-out rows")


def likelihood_change(history: Sequence[Mapping[str, Any]]) -> str:
    """Tell what the fit of a flow changed.

    Parameters
    ----------
    history : sequence of mapping
        That of a `FitRecord`.

    Returns
    -------
    str
        A line.
    """
    before, after = (f"{history[place]['held_out_bits']:.4f}" for place in (0, -1))
    return f"held-out rows: {before} bits per dimension before, {after} after (lower is likelier)"


def facts_table(facts: Mapping[str, Any]) -> Table:
    """Lay out what a model is.

    Parameters
    ----------
    facts : mapping
        Those of a `ModelRecord`.

    Returns
    -------
    Table
        One row a fact, and one a fit.
    """
    table = Table(show_header=False, box=None)
    for name, value in facts.items():
        if name != "fits":
            table.add_row(name.replace("_", " "), _plain(value))
    fitted_on = "vectors" if facts["reference"] == GIVEN else "texts"
    for step, record in enumerate(facts["fits"], start=1):
        done = f"{record['transform']}({_plain(record['parameters'])})"
        table.add_row(f"fit {step}", "left alone by auto" if record["transform"] == "none" else done)
        table.add_row("", f"on {record['n_texts']} {fitted_on} of {record['source']}, {record['fitted_at']}")
        table.add_row("", f"left out for want of a vector: {record['n_zero_rows']}")
        if record.get("choice"):
            table.add_row("", f"auto, because {record['choice']['reason']}")
        if record.get("history"):
            table.add_row("", likelihood_change(record["history"]))
    return table


def print_study(cells: Sequence[AutoCell], verdict: AutoVerdict) -> None:
    """Print a study of "auto", x100: a table a model, and what all come to.

    Parameters
    ----------
    cells : sequence of AutoCell
        Its cells.
    verdict : AutoVerdict
        What they come to.
    """
    for model, means in verdict.averages.items():
        table = Table("task", *ROWS, "auto chose", "best was", title=model, title_justify="left")
        for cell in (cell for cell in cells if cell.model == model):
            table.add_row(cell.task, *(f"{100 * cell.scores[row]:.2f}" for row in ROWS), cell.chosen, cell.best)
        table.add_section()
        table.add_row("average", *(f"{100 * means[row]:.2f}" for row in ROWS))
        out.print(table)
    out.print(
        f"models that do better on average under a fixed rule: {', '.join(verdict.below_average) or 'none'}\n"
        f"best in hindsight minus auto, mean over {len(cells)} cells: {100 * verdict.mean_regret:.2f}\n"
        f"most lost against leaving the vectors alone: {100 * max(0.0, verdict.worst_loss):.2f}"
    )


def print_gem_study(cells: Sequence[GemCell]) -> None:
    """Print a study of GEM: a table a model, Pearson and Spearman x100 of each task side by side.

    Parameters
    ----------
    cells : sequence of GemCell
        Its cells.
    """
    by_place = {(cell.model, cell.study, cell.condition, cell.task): cell for cell in cells}
    for model in dict.fromkeys(cell.model for cell in cells):
        rows = dict.fromkeys((cell.study, cell.condition) for cell in cells if cell.model == model)
        tasks = dict.fromkeys(cell.task for cell in cells if cell.model == model)
        table = Table(title=model, title_justify="left", caption="r: Pearson, rho: Spearman", caption_justify="left")
        for name in ("study", "condition"):
            table.add_column(name)
        for task in tasks:
            for name in (f"{task} r", "rho", "zero rows"):
                table.add_column(name, justify="right")
        last = ""
        for study, condition in rows:
            if study != last:
                table.add_section()
            found = [by_place[model, study, condition, task] for task in tasks]
            figures = [[x100(cell.pearson), x100(cell.spearman), str(cell.n_zero_rows)] for cell in found]
            table.add_row("" if study == last else study, condition, *(text for three in figures for text in three))
            last = study
        out.print(table)


def print_demo(report: DemoReport) -> None:
    """Print what the demo saw.

    Parameters
    ----------
    report : DemoReport
        Before and after.
    """
    before, after = report.before, report.after
    table = change_table(before.space, after.space)
    table.title = f"wordllama, {report.n_texts} sentences, whitening with strength {DEMO_STRENGTH}"
    table.add_row(f"paraphrases found, of {report.n_paraphrased}", f"{before.n_found}", f"{after.n_found}")
    out.print(table)
    for query, *found in zip(report.queries, before.neighbours, after.neighbours, strict=True):
        out.print(f"\nnearest to: {query}")
        for label, neighbour in zip(("before", "after"), found, strict=True):
            note = "  (same meaning)" if neighbour.same_meaning else ""
            out.print(f"  {label:<6} {neighbour.score:5.2f}  {neighbour.text}{note}")
    out.print(
        f"\nWhitening fully (strength 1) would find {report.n_found_at_full_strength}: this encoder was trained on "
        "pairs, and the sample is small.\nMeasure on your own task."
    )
    identical = "bit-identical vectors" if report.reloaded_identical else "DIFFERENT vectors"
    out.print(f"Saved and loaded: {identical}. {report.elapsed_s:.1f} s in all.")


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={_plain(inner)}" for name, inner in value.items()) or "none"
    return str(value)


def print_unknown(coverage: tuple[int, int]) -> None:
    """Print how many tokens an encoder did not know, if any could be.

    Parameters
    ----------
    coverage : tuple of two int
        Tokens, and unknown ones among them, see `Encoder.coverage`.
    """
    n_tokens, n_unknown = coverage
    if n_tokens:
        out.print(f"tokens: {n_tokens:,}; unknown: {n_unknown:,} ({n_unknown / n_tokens:.1%})")
