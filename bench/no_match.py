"""False positives and kept paraphrases of "no match" (isosent.search.chance), next to a threshold on the plain cosine.

python bench/no_match.py DATA --cache DIR --tuning NAME=REFERENCE ... --held-out NAME=REFERENCE ...
DATA is a folder with cqa, sts, stsbenchmark, sick, kornlu, nli and senteval. Each encoder is measured as it is and
whitened (NAME+whitened), on five indexes. Constants and the plain threshold are chosen on the tuning encoders and the
indexes forum and captions; --constants prints what other constants give there. Word vectors count as knowing no Korean.
"""

import argparse
import json
import random
import warnings
from functools import cached_property
from itertools import product
from pathlib import Path
from unittest.mock import patch
from xml.etree import ElementTree

import numpy as np

from isosent import load
from isosent.evaluation.cqa import read_cqa
from isosent.evaluation.sts import read_scored_pairs, read_sts
from isosent.numeric.similarity import unit_rows
from isosent.search import chance
from isosent.transforms.whitening import Whitening

RATES = (0.01, 0.05, 0.1)
TUNING_INDEXES = ("forum", "captions")
K = 10
N_QUERIES = 600
N_WORDS = 60
FORUMS = {"deft-forum", "answers-forums", "belief"}
CAPTIONS = {"images", "MSRvid"}
NEWS = {"headlines", "MSRpar", "SMTnews", "tweet-news", "deft-news"}
CONSTANTS = {
    "_ISOLATED": (0.02, 0.05, 0.1),
    "_MOST_EXPONENT": (9.0, 10.0, 11.0, 12.0, 14.0),
    "_EXPONENT_A_DIMENSION": (0.3, 0.4, 0.5),
}


def distinct(texts):
    return list(dict.fromkeys(text for text in texts if text.strip()))


class Corpora:
    """Five indexes, each with paraphrases of some of its rows and with queries from other domains."""

    def __init__(self, data):
        self.rng = random.Random(0)
        sets = {each.name: each for each in (*read_sts(data / "sts"), *read_sts(data / "stsbenchmark"))}
        sick = read_sts(data / "sick")[0]
        questions = [question for part in read_cqa(data / "cqa") for question in part.questions]
        korean = [
            read_scored_pairs(data / "kornlu" / "KorSTS" / f"sts-{part}.tsv") for part in ("train", "dev", "test")
        ]
        mrpc = [
            line.rstrip("\n").split("\t")
            for part in ("train", "test")
            for line in read_lines(data / "senteval" / "MRPC" / f"msr_paraphrase_{part}.txt", "utf-8-sig")[1:]
        ]
        subsets = [(name, subset) for name, each in sets.items() for subset in each.subsets]

        def pairs(names, least=4.0):
            return paraphrases([subset for _, subset in subsets if subset.name in names], least)

        news = [text for _, subset in subsets if subset.name in NEWS for text in subset.texts]
        news += [text for row in mrpc for text in row[3:5]]
        related = [first_words(candidate) for question in questions for candidate in question.candidates]
        self.queries = {
            "sick": self.some(sick.texts),
            "korean": self.some(
                text
                for line in read_lines(data / "kornlu" / "KorNLI" / "xnli.test.ko.tsv")[1:]
                for text in line.split("\t")[:2]
            ),
            "reviews": self.some(
                text
                for part in ("neg", "pos")
                for text in read_lines(data / "senteval" / "MR" / f"rt-polarity.{part}", "latin-1")
            ),
            "forum": self.some([first_words(question.text.split(".")[0]) for question in questions] + related),
            "news": self.some(news),
        }
        comments = [
            first_words(comment.findtext("RelCText") or "")
            for path in sorted((data / "cqa").rglob("*QL-*.xml"))
            for comment in ElementTree.parse(path).iter("RelComment")
        ]
        duplicates = [
            (first_words(question.text), first_words(candidate))
            for question in questions
            for candidate, relevant in zip(question.candidates, question.relevant, strict=True)
            if relevant
        ]
        nli = {
            name: [json.loads(line) for line in read_lines(data / "nli" / name)]
            for name in ("snli/dev.jsonl", "mnli/dev.jsonl", "scitail/test.jsonl")
        }
        captions = [row[side] for row in nli["snli/dev.jsonl"] for side in ("premise", "hypothesis")]
        mixed = [row["premise"] for row in nli["mnli/dev.jsonl"]]
        mixed += [row[side] for row in nli["scitail/test.jsonl"] for side in ("premise", "hypothesis")]
        stsb = [subset for name, subset in subsets if name == "STSB"]
        self.indexes = {
            "forum": self.planted(pairs(FORUMS), related + self.some(comments, 9000), 300, also=duplicates),
            "captions": self.planted(pairs(CAPTIONS) + paraphrases(sick.subsets, 4.6), captions, 600),
            "news": self.planted(pairs(NEWS) + [(row[3], row[4]) for row in mrpc if row[0] == "1"], news, 600),
            "mixed": self.planted(paraphrases(stsb, 4.0), mixed, 400),
            "korean": self.planted(paraphrases(korean, 4.0), [text for each in korean for text in each.texts], 500),
        }
        self.unrelated = {
            "forum": ("sick", "korean", "reviews"),
            "captions": ("forum", "korean", "reviews", "news"),
            "news": ("sick", "korean", "reviews", "forum"),
            "mixed": ("korean", "reviews"),
            "korean": ("sick", "reviews", "forum", "news"),
        }

    def some(self, texts, n_texts=N_QUERIES):
        texts = distinct(texts)
        self.rng.shuffle(texts)
        return texts[:n_texts]

    def planted(self, pairs, fillers, n_pairs, *, also=(), n_rows=12_000):
        """Rows that hold the second text of each pair but no query; queries with their partners."""
        pairs = pairs[:]
        self.rng.shuffle(pairs)
        used, chosen = set(), {}
        for query, partner in pairs:
            if len(chosen) < n_pairs and not {query, partner} & used:
                used |= {query, partner}
                chosen[query] = {partner}
        for query, partner in also:
            if query != partner:
                chosen.setdefault(query, set()).add(partner)
        partners = distinct(text for texts in chosen.values() for text in sorted(texts))
        rows = [text for text in distinct(partners + self.some(fillers, n_rows)) if text not in chosen]
        return rows, chosen

    @property
    def texts(self):
        found = [text for rows, related in self.indexes.values() for text in (*rows, *related)]
        return distinct(found + [text for texts in self.queries.values() for text in texts])


def read_lines(path, encoding="utf-8"):
    return [line for line in path.read_text(encoding).split("\n") if line.strip()]


def first_words(text):
    return " ".join(text.split()[:N_WORDS])


def paraphrases(subsets, least):
    pairs = (
        (first, second)
        for subset in subsets
        for first, second, score in zip(subset.first, subset.second, subset.scores, strict=True)
        if score >= least and first != second
    )
    return list(dict.fromkeys(pairs))


def encoded(name, reference, texts, cache):
    """Unit vectors of texts, kept in a file, by text."""
    texts_path, vectors_path = cache / f"{name}.json", cache / f"{name}.npy"
    known = json.loads(texts_path.read_text("utf-8")) if texts_path.exists() else []
    vectors = np.load(vectors_path) if known else None
    if missing := sorted(set(texts) - set(known)):
        new = unit_rows(load(reference).encode(missing))
        vectors = new if vectors is None else np.concatenate([vectors, new])
        known += missing
        np.save(vectors_path, vectors)
        texts_path.write_text(json.dumps(known), "utf-8")
    return dict(zip(known, vectors, strict=True))


class Cell:
    """An encoder on an index: the best hits of each group of queries, and the hits that are the partner."""

    def __init__(self, encoder, corpora, index, vectors, whitened, *, has_korean):
        self.encoder, self.index = encoder, index
        rows, related = corpora.indexes[index]
        rows = [text for text in rows if vectors[text].any()]
        self.rows = np.array([vectors[text] for text in rows])
        transform = Whitening().fit(self.rows) if whitened else None
        self.rows = self.mapped(self.rows, transform)
        groups = {"related": related} | {name: corpora.queries[name] for name in corpora.unrelated[index]}
        self.found = {}
        for name, texts in groups.items():
            asked = [text for text in texts if vectors[text].any()]
            if name == "korean" and not has_korean:
                continue
            queries = self.mapped(np.array([vectors[text] for text in asked]), transform)
            cosines = queries @ self.rows.T
            top = np.argsort(-cosines, axis=1)[:, :K]
            scores = np.take_along_axis(cosines, top, axis=1)
            if name == "related":
                is_partner = [[rows[i] in related[text] for i in hits] for text, hits in zip(asked, top, strict=True)]
                self.is_partner = np.array(is_partner)
                self.reached = float(self.is_partner.any(axis=1).mean())
            self.found[name] = queries, top, scores

    @staticmethod
    def mapped(vectors, transform):
        return unit_rows(vectors if transform is None else transform.transform(vectors).astype(np.float32))

    def rates(self, scores, threshold):
        """False positives of each group, and kept partners among those in the ten best."""
        alarms = {name: share(scores[name] > threshold) for name in self.found if name != "related"}
        reached = self.is_partner.any(axis=1)
        return alarms, share((scores["related"][reached] > threshold) & self.is_partner[reached])

    @cached_property
    def cosines(self):
        return {name: scores for name, (_, _, scores) in self.found.items()}

    @cached_property
    def corrected(self):
        fitted = self.fitted()
        return {name: fitted.corrected(u, self.rows[top], scores) for name, (u, top, scores) in self.found.items()}

    def fitted(self):
        return chance.Chance.fit(self.rows, n_rows=len(self.rows))

    def by_chance(self):
        """Rates of `Chance`, by the nominal rate."""
        fitted = self.fitted()
        return {rate: self.rates(self.corrected, fitted.threshold(rate)) for rate in RATES}

    def first(self, scores):
        """Share of the partners among the ten best that are the best."""
        reached = self.is_partner.any(axis=1)
        best = scores["related"].argmax(axis=1)
        return round(float(self.is_partner[np.arange(len(best)), best][reached].mean()), 4)


def share(matches):
    return round(float(matches.any(axis=1).mean()), 4)


def one_threshold(cells, rate, scores="cosines"):
    """Score at which the mean of the false positives of all groups is `rate`."""
    low, high = -1.0, 1.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        alarms = [alarm for cell in cells for alarm in cell.rates(getattr(cell, scores), middle)[0].values()]
        low, high = (middle, high) if np.mean(alarms) > rate else (low, middle)
    return high


def measured(cells, tuning):
    fixed = {(kind, rate): one_threshold(tuning, rate, kind) for kind in ("cosines", "corrected") for rate in RATES}
    own = {
        (encoder, rate): one_threshold([cell for cell in cells if cell.encoder == encoder], rate)
        for encoder, rate in product(dict.fromkeys(cell.encoder for cell in cells), RATES)
    }
    for cell in cells:
        by_chance = cell.by_chance()
        for rate in RATES:
            outcomes = {
                "chance": by_chance[rate],
                "cosine, one threshold": cell.rates(cell.cosines, fixed["cosines", rate]),
                "corrected score, one threshold": cell.rates(cell.corrected, fixed["corrected", rate]),
                "cosine, threshold of this encoder": cell.rates(cell.cosines, own[cell.encoder, rate]),
            }
            for way, (alarms, kept) in outcomes.items():
                yield {
                    "encoder": cell.encoder,
                    "index": cell.index,
                    "n_rows": len(cell.rows),
                    "partner_in_ten_best": round(cell.reached, 4),
                    "first": {"cosine": cell.first(cell.cosines), "corrected score": cell.first(cell.corrected)},
                    "rate": rate,
                    "way": way,
                    "false_positives": alarms,
                    "kept": kept,
                }


def constants(cells):
    """Mean false positives and kept partners on the tuning cells, for each choice of the constants."""
    for values in product(*CONSTANTS.values()):
        choice = dict(zip(CONSTANTS, values, strict=True))
        with patch.multiple(chance, **choice):
            by_cell = [cell.by_chance() for cell in cells]
        outcomes = {rate: [by_rate[rate] for by_rate in by_cell] for rate in RATES}
        yield choice | {
            f"{what} {rate}": round(float(np.mean(numbers)), 4)
            for rate, found in outcomes.items()
            for what, numbers in (
                ("false_positives", [alarm for alarms, _ in found for alarm in alarms.values()]),
                ("kept", [kept for _, kept in found]),
            )
        }


def tables(records, tuning_encoders):
    """Means over cells, for tuned and left-out encoders and indexes; then each cell at the rate 0.01."""
    ways = list(dict.fromkeys(record["way"] for record in records))
    print("| encoders, indexes | way |" + "".join(f" {rate:.0%}: false positives | worst | kept |" for rate in RATES))
    print("|---|---|" + "---|" * 3 * len(RATES))
    for is_tuned, is_tuning_index in product((True, False), repeat=2):
        part = [
            record
            for record in records
            if (record["encoder"].split("+")[0] in tuning_encoders) == is_tuned
            and (record["index"] in TUNING_INDEXES) == is_tuning_index
        ]
        names = ("tuned" if is_tuned else "left out", "tuned" if is_tuning_index else "left out")
        for way in ways:
            line = f"| {', '.join(names)} | {way} |"
            for rate in RATES:
                chosen = [record for record in part if record["way"] == way and record["rate"] == rate]
                alarms = [alarm for record in chosen for alarm in record["false_positives"].values()]
                kept = np.mean([record["kept"] for record in chosen])
                line += f" {np.mean(alarms):.1%} | {max(alarms):.0%} | {kept:.0%} |"
            print(line)
    print("\n| encoder | index | at 1% | kept | cosine | kept |\n|---|---|---|---|---|---|")
    chosen = [record for record in records if record["rate"] == RATES[0]]
    for ours, plain in zip(chosen[:: len(ways)], chosen[1 :: len(ways)], strict=True):
        cells = [
            ", ".join(f"{name} {alarm:.1%}" for name, alarm in each["false_positives"].items())
            for each in (ours, plain)
        ]
        print(f"| {ours['encoder']} | {ours['index']} | {cells[0]} | {ours['kept']:.0%} |", end="")
        print(f" {cells[1]} | {plain['kept']:.0%} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--tuning", nargs="+", required=True, metavar="NAME=REFERENCE")
    parser.add_argument("--held-out", nargs="+", default=[], metavar="NAME=REFERENCE")
    parser.add_argument("--constants", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    arguments.cache.mkdir(parents=True, exist_ok=True)
    corpora = Corpora(arguments.data)
    references = dict(each.split("=", 1) for each in arguments.tuning + arguments.held_out)
    tuning_encoders = [each.split("=")[0] for each in arguments.tuning]
    cells = []
    for name, reference in references.items():
        vectors = encoded(name, reference, corpora.texts, arguments.cache)
        has_korean = not reference.startswith("words:")
        for whitened, index in product((False, True), corpora.indexes):
            if has_korean or index != "korean":
                encoder = name + "+whitened" * whitened
                cells.append(Cell(encoder, corpora, index, vectors, whitened, has_korean=has_korean))
    tuning = [cell for cell in cells if cell.encoder.split("+")[0] in tuning_encoders and cell.index in TUNING_INDEXES]
    records = list(constants(tuning) if arguments.constants else measured(cells, tuning))
    if arguments.markdown and not arguments.constants:
        tables(records, tuning_encoders)
    else:
        print("\n".join(json.dumps(record) for record in records))


if __name__ == "__main__":
    main()
