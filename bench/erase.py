"""Erasing the language or the source of texts, next to centering, whitening and maps that need the label of every text.

python bench/erase.py DATA [--multilingual DIR] [--xquad DIR] [--markdown]
DATA holds stsbenchmark and kornlu. --multilingual: `data` of github.com/PhilipMay/stsb-multi-mt (stsb-LANG-train.csv);
--xquad: `xquad-r` of github.com/ziyi-yang/LIR. No sentence is fitted on in two languages, and none that is tested.
"""

import argparse
import csv
import json
from pathlib import Path

import numpy as np

import isosent
from isosent import LinearMap, MeanCentering, Moments, Whitening
from isosent.evaluation.sts import read_scored_pairs
from isosent.numeric.neighbors import nearest_rows
from isosent.numeric.similarity import pairwise_cosine, spearman, unit_rows
from isosent.transforms.erasure import Erasure

LANGUAGES = ("en", "de", "fr", "es", "ru", "zh")
QUESTIONS = ("en", "de", "es", "ru", "zh", "th")  # wordllama knows hardly any Thai
N_FITTED = 628  # of all languages together
LIR_COMPONENTS = 5


def group_means(rows, labels):
    """Subtract the mean of each group; needs the label of every text."""
    means = {each: rows[labels == each].mean(axis=0) for each in np.unique(labels)}
    return lambda new, of: new - np.stack([means[each] for each in of])


def span_of_means(rows, labels):
    means = np.stack([rows[labels == each].mean(axis=0) for each in np.unique(labels)]) - rows.mean(axis=0)
    _, values, axes = np.linalg.svd(means, full_matrices=False)
    axes = axes[values > 1e-6 * values[0]]
    return lambda new, of: new - (new - rows.mean(axis=0)) @ axes.T @ axes


def lir(rows, labels):
    """Remove the strongest directions of each language (Yang et al. 2021); needs the label of every text."""
    axes = {
        each: np.linalg.svd(rows[labels == each], full_matrices=False)[2][:LIR_COMPONENTS] for each in np.unique(labels)
    }

    def removed(new, of):
        return np.stack([row - row @ axes[each].T @ axes[each] for row, each in zip(new, of, strict=True)])

    return removed


def by_map(linear_map):
    return lambda new, of: linear_map.apply(new)


def ways(rows, labels):
    erased = Erasure().fit(rows, labels).linear_map_
    moments = Moments.from_rows(rows)
    whitened = Whitening(strength=0.5, shrinkage="oas")
    after = Whitening(strength=0.5, shrinkage="oas").fit_moments(moments.mapped(erased)).linear_map_
    return {
        "as it is": by_map(LinearMap(np.eye(rows.shape[1]), np.zeros(rows.shape[1]))),
        "centered": by_map(MeanCentering().fit_moments(moments).linear_map_),
        "whitening 0.5": by_map(whitened.fit_moments(moments).linear_map_),
        "group means subtracted *": group_means(rows, labels),
        "span of group means": span_of_means(rows, labels),
        "LIR *": lir(rows, labels),
        "erased": by_map(erased),
        "erased, whitening 0.5": by_map(erased.then(after)),
    }


def recall(documents, queries, partners):
    """Share of queries, rows of the documents, whose partner is among the ten nearest of all other documents."""
    units = unit_rows(documents)
    cosines = units[queries] @ units.T
    cosines[np.arange(len(queries)), queries] = -np.inf
    wanted = cosines[np.arange(len(queries)), partners]
    return 100 * float(((cosines > wanted[:, None]).sum(axis=1) < 10).mean())


def parallel_table(name, model, fitted, tested):
    """Recall@10 of the English translation in one pool of all languages, by language of the query."""
    languages = list(tested)
    texts = [text for each in languages for text in fitted[each]]
    labels = np.repeat(languages, [len(fitted[each]) for each in languages])
    rows = model.encode(texts).astype(np.float64)
    vectors = {each: model.encode(tested[each]).astype(np.float64) for each in languages}
    n_rows, found = len(tested["en"]), {}
    for way, apply in ways(rows, labels).items():
        pool, first = np.concatenate([apply(vectors[each], [each] * n_rows) for each in languages]), np.arange(n_rows)
        found[way] = {
            each: recall(pool, first + n_rows * place, first) for place, each in enumerate(languages) if each != "en"
        } | {"English STS-B": english(model, apply)}
    return {"table": name, "n_fitted": len(texts), "n_queries": n_rows, "ways": found}


def english(model, apply):
    first, second, gold = list(STSB.first), list(STSB.second), STSB.scores
    sides = [apply(model.encode(side).astype(np.float64), ["en"] * len(side)) for side in (first, second)]
    return 100 * spearman(pairwise_cosine(*sides), gold)


def translations(folder):
    """Sentences of the test set in each language, and disjoint ones of the training set to fit on."""
    read = {
        each: {part: sentences(folder / f"stsb-{each}-{part}.csv") for part in ("train", "test")} for each in LANGUAGES
    }
    rows = first_of_each(read["en"]["test"])
    tested = {each: [read[each]["test"][row] for row in rows] for each in LANGUAGES}
    picked = np.random.default_rng(0).permutation(first_of_each(read["en"]["train"]))[:N_FITTED]
    parts = np.array_split(picked, len(LANGUAGES))
    return {
        each: [read[each]["train"][row] for row in part] for each, part in zip(LANGUAGES, parts, strict=True)
    }, tested


def sentences(path):
    with path.open(newline="", encoding="utf-8") as file:
        return [row[0] for row in csv.reader(file)]


def first_of_each(texts):
    return [texts.index(text) for text in dict.fromkeys(texts)]


def questions(folder):
    """Half of the questions to test, and the other half, each in one language, to fit."""
    asked = {}
    for each in QUESTIONS:
        articles = json.loads((folder / f"{each}.json").read_text())["data"]
        asked[each] = [q["question"] for a in articles for p in a["paragraphs"] for q in p["qas"]]
    order = np.random.default_rng(0).permutation(len(asked["en"]))
    half, parts = order[: len(order) // 2], np.array_split(order[len(order) // 2 :], len(QUESTIONS))
    fitted = {each: [asked[each][row] for row in part] for each, part in zip(QUESTIONS, parts, strict=True)}
    return fitted, {each: [asked[each][row] for row in half] for each in QUESTIONS}


def sources(model, data):
    """Genres of STS-B: the share of texts whose nearest is of the same genre, and STS-B itself."""
    with (data / "stsbenchmark" / "sts-train.csv").open(encoding="utf-8") as file:
        lines = [line.rstrip("\n").split("\t") for line in file]
    genre = {line[5]: line[0] for line in lines}
    texts = np.random.default_rng(0).permutation(list(genre))
    labels, rows = np.array([genre[text] for text in texts]), model.encode(texts.tolist()).astype(np.float64)
    half, found = len(rows) // 2, {}
    for way, apply in ways(rows[:half], labels[:half]).items():
        if not way.endswith("*"):
            mapped = apply(rows[half:], labels[half:])[:3000]
            same = (labels[half:][:3000][nearest_rows(mapped)] == labels[half:][:3000]).mean()
            found[way] = {"nearest of the same genre": 100 * float(same), "English STS-B": english(model, apply)}
    return {"table": "genres of STS-B", "n_fitted": half, "n_queries": 3000, "ways": found}


def korean(model, data):
    """KorSTS test sentences and their English originals, in one pool."""
    sides = []
    for path, column in ((data / "kornlu/KorSTS/sts-test.tsv", 5), (data / "stsbenchmark/sts-test.csv", 5)):
        lines = [line.rstrip("\n").split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
        sides.append([line[column] for line in lines if line[0] != "genre"])
    rows = [row for row in first_of_each(sides[1]) if row < len(sides[0])]
    half = len(rows) // 2
    fitted = {
        "en": [sides[1][row] for row in rows[: half // 2]],
        "ko": [sides[0][row] for row in rows[half // 2 : half]],
    }
    return fitted, {"en": [sides[1][row] for row in rows[half:]], "ko": [sides[0][row] for row in rows[half:]]}


def markdown(result):
    columns = list(next(iter(result["ways"].values())))
    print(f"\n{result['table']}: {result['n_fitted']:,} texts to fit, {result['n_queries']:,} queries\n")
    print("| | " + " | ".join(columns) + " |\n|" + "---|" * (len(columns) + 1))
    for way, scores in result["ways"].items():
        print(f"| {way} | " + " | ".join(f"{scores[each]:.1f}" for each in columns) + " |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--multilingual", type=Path)
    parser.add_argument("--xquad", type=Path)
    parser.add_argument("--model", default="wordllama")
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    loaded = isosent.load(arguments.model)
    STSB = read_scored_pairs(arguments.data / "stsbenchmark" / "sts-test.csv")
    results = [sources(loaded, arguments.data), parallel_table("KorSTS", loaded, *korean(loaded, arguments.data))]
    if arguments.multilingual:
        results.append(parallel_table("STS-B, six languages", loaded, *translations(arguments.multilingual)))
    if arguments.xquad:
        results.append(parallel_table("XQuAD-R questions", loaded, *questions(arguments.xquad)))
    for result in results:
        markdown(result) if arguments.markdown else print(json.dumps(result))
