"""Left-out results of auto: its constants are chosen on all families of encoders but one, and measured on that one.

Step 1 measures cells (an encoder on a task), one JSON line each: python bench/auto.py measure DATA FAMILY=REFERENCE ...
  [--korsts FILE] >> cells.jsonl. Tasks are the STS sets in DATA, and KorSTS with --korsts sts-test.tsv.
Step 2 prints tables: python bench/auto.py report cells.jsonl [--figure FILE].
"""

import argparse
import json
from collections import defaultdict
from itertools import product
from pathlib import Path

import numpy as np

from isosent import load
from isosent.evaluation.run import encode_tasks
from isosent.evaluation.sts import pairs_task, sts_tasks
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import nonzero_rows, pairwise_cosine, spearman
from isosent.numeric.spectrum import effective_rank, spectrum
from isosent.pages.figures import Axis, Figure, Panel
from isosent.report.figures import write_figure
from isosent.transforms.auto import EVEN, LEAST_GAIN, SHARE_OF_GAIN, STRENGTHS, Candidate, choose, sample_pairs, under
from isosent.transforms.base import Auto

WIDTHS = (1.0, 0.5, 0.25)
VALUES = {
    "least_gain": (0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04),
    "share": (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 1.0),
    "even": (0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 1.0),
}
LABELS = {
    "least_gain": "least gain in agreement",
    "share": "share of the best gain",
    "even": "effective rank / dimensions, at least",
}
FIXED = [f"{strength} {share}" for share in WIDTHS for strength in STRENGTHS] + ["mean projection"]


def measure(vectors, texts, items, gold):
    """Spearman x100 of every fixed rule, and the agreement of every strength with word overlap."""
    row_of = {text: row for row, text in enumerate(texts)}
    first, second = (np.array([row_of[pair[side]] for pair in items]) for side in (0, 1))
    has_vector = nonzero_rows(vectors)
    moments = Moments.from_rows(vectors[has_vector])
    eigen = spectrum(moments.covariance, noise=moments.rounding_variance)
    grid = [
        Candidate("whitening", g, min(eigen.rank, max(1, int(share * len(eigen.values)))))
        for share in WIDTHS
        for g in STRENGTHS
    ]
    projected = Candidate("mean_projection").transform().fit_moments(moments).linear_map_.apply(vectors)
    mapped = [*under(vectors, moments, grid), projected, vectors]
    scores = {
        name: 100 * spearman(pairwise_cosine((rows * has_vector[:, None])[first], rows[second]), gold)
        for name, rows in zip((*FIXED, "none"), mapped, strict=True)
    }
    choice = choose(vectors, sample_pairs(texts), Auto())
    gains = {each.candidate.strength: (each.gain, each.low) for each in choice.candidates[1:]}
    evenness = effective_rank(eigen.values[: eigen.rank]) / len(eigen.values)
    return {"scores": scores, "gains": gains, "evenness": evenness, "n_texts": len(texts)}


def cells(arguments):
    tasks = sts_tasks(arguments.data)
    if arguments.korsts:
        tasks = [*tasks, pairs_task(arguments.korsts)]
    for each in arguments.models:
        family, _, reference = each.partition("=")
        model = load(reference)
        for task, (_, encoded) in zip(tasks, encode_tasks(model, tasks, with_targets=True, progress=None), strict=True):
            texts = list(dict.fromkeys(task.target_texts))
            gold = np.array(task.score(lambda asked, encoded=encoded: encoded(asked), 0).items.gold)
            record = measure(encoded(texts), texts, task.items, gold)
            yield {"family": family, "encoder": reference, "task": task.name} | record


def chosen(cell, least_gain=LEAST_GAIN, share=SHARE_OF_GAIN, even=EVEN):
    """The rule of `isosent.transforms.auto`, with other constants."""
    gains = {strength: gain for strength, (gain, _) in cell["gains"].items()}
    best = max(gains, key=gains.get)
    if gains[best] >= least_gain and cell["gains"][best][1] > 0:
        lows = {strength: low for strength, (_, low) in cell["gains"].items()}
        strength = [each for each in gains if lows[each] > 0 and gains[each] >= share * gains[best]][-1]
        return f"{strength} 1.0"
    mildest = next(iter(gains))
    return f"{mildest} 1.0" if cell["evenness"] > even and cell["gains"][mildest][1] > 0 else "none"


def gains_of(some, rule):
    return np.array([cell["scores"][rule(cell)] - cell["scores"]["none"] for cell in some])


def by_family(some, values):
    """Mean over the families of the mean of each."""
    groups = defaultdict(list)
    for cell, value in zip(some, values, strict=True):
        groups[cell["family"]].append(value)
    return float(np.mean([np.mean(group) for group in groups.values()]))


def safest(some):
    """Of the constants within 0.1 of the best mean gain, those with the fewest losses above 0.5."""
    tried = []
    for constants in product((0.01, 0.015, 0.02, 0.025, 0.03), (0.6, 0.7, 0.75, 0.8, 0.85, 0.9), (0.5, 0.6, 0.7)):
        gains = gains_of(some, lambda cell, constants=constants: chosen(cell, *constants))
        tried.append((by_family(some, gains), -int((gains < -0.5).sum()), constants))
    best = max(gain for gain, *_ in tried)
    return max((losses, gain, constants) for gain, losses, constants in tried if gain >= best - 0.1)[2]


def report(some):
    families = list(dict.fromkeys(cell["family"] for cell in some))
    print(
        "| left out | encoders | cells | none | best fixed rule of the others | auto | worst cell | regret |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    totals = []
    for family in families:
        others = [cell for cell in some if cell["family"] != family]
        these = [cell for cell in some if cell["family"] == family]
        constants = safest(others)
        fixed = max(FIXED, key=lambda rule, others=others: by_family(others, gains_of(others, lambda _: rule)))
        auto = gains_of(these, lambda cell, constants=constants: chosen(cell, *constants))
        by_fixed = gains_of(these, lambda _, fixed=fixed: fixed)
        best = np.array([max(cell["scores"].values()) - cell["scores"]["none"] for cell in these])
        totals += zip(these, auto, by_fixed, best, strict=True)
        print(
            f"| {family} | {len({cell['encoder'] for cell in these})} | {len(these)} | "
            f"{np.mean([cell['scores']['none'] for cell in these]):.2f} | {by_fixed.mean():+.2f} ({fixed}) | "
            f"{auto.mean():+.2f} | {auto.min():+.2f} | {(best - auto).mean():.2f} |  # {constants}"
        )
    _, auto, fixed, best = (np.array(column) for column in zip(*totals, strict=True))
    print(f"all cells: fixed {fixed.mean():+.2f}, auto {auto.mean():+.2f}, best in hindsight {best.mean():+.2f}")
    print(f"regret {(best - auto).mean():.2f}; below no transform by more than 0.5: {int((auto < -0.5).sum())}")
    print("\nwith the shipped constants, by encoder:")
    for encoder in dict.fromkeys(cell["encoder"] for cell in some):
        these = [cell for cell in some if cell["encoder"] == encoder]
        gains, scores = gains_of(these, chosen), [cell["scores"] for cell in these]
        print(
            f"| {encoder} | {len(these)} | {np.mean([each['none'] for each in scores]):.2f} | {gains.mean():+.2f} "
            f"| {gains.min():+.2f} | {np.mean([max(each.values()) - each['none'] for each in scores]):+.2f} |"
        )
    print("\nsensitivity (mean gain over families; cells that lose more than 0.5):")
    for name, value, gain, n_losses in sensitivity(some):
        print(f"| {name} {value} | {gain:+.2f} | {n_losses} |")


def sensitivity(some):
    """Mean gain and number of losses for values of each constant, the others as shipped."""
    for name, values in VALUES.items():
        for value in values:
            gains = gains_of(some, lambda cell, name=name, value=value: chosen(cell, **{name: value}))
            yield name, value, by_family(some, gains), int((gains < -0.5).sum())


def sensitivity_figure(some):
    rows = list(sensitivity(some))
    gains = [gain for *_, gain, _ in rows]
    panels = []
    for name, shipped in {"least_gain": LEAST_GAIN, "share": SHARE_OF_GAIN, "even": EVEN}.items():
        points = [(value, gain, n_losses) for each, value, gain, n_losses in rows if each == name]
        span = points[-1][0] - points[0][0]
        panel = Panel(
            Axis(LABELS[name], points[0][0] - 0.05 * span, points[-1][0] + 0.05 * span),
            Axis("mean gain in Spearman x100", 0, max(gains) * 1.15),
        )
        panel.line([point[:2] for point in points], "after")
        panel.upright(shipped, f"shipped: {shipped}", row=3)
        for value, gain, n_losses in points:
            panel.dot(value, gain, "after")
            panel.text(value, gain, str(n_losses), shift=(0, -10))
        panels.append(panel)
    description = "Mean gain for values of each constant. Numbers: cells, of all, that lose more than 0.5 points."
    return Figure("Sensitivity of the three constants", description, [(description, panels)])


def commands_of(description):
    """The parser of the commands measure and report, and that of report."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("data")
    measuring.add_argument("models", nargs="+", metavar="FAMILY=REFERENCE")
    measuring.add_argument("--korsts", metavar="FILE")
    reporting = commands.add_parser("report")
    reporting.add_argument("cells")
    return parser, reporting


def main():
    parser, reporting = commands_of(__doc__)
    reporting.add_argument("--figure", metavar="FILE")
    arguments = parser.parse_args()
    if arguments.command == "measure":
        for cell in cells(arguments):
            print(json.dumps(cell), flush=True)
    else:
        some = [json.loads(line) for line in Path(arguments.cells).read_text("utf-8").splitlines()]
        report(some)
        if arguments.figure:
            write_figure(arguments.figure, sensitivity_figure(some))


if __name__ == "__main__":
    main()
