"""Duplicates and clusters, measured on public data: false positives, recall of planted and labelled pairs.

python bench/duplicates.py changes|rates|labels|clusters|speed DATA NAME=REFERENCE .... DATA is the folder of the
research data sets. Each corpus is marked as "tuned" (constants were chosen on it) or "other".
"""

import argparse
import csv
import json
import re
import resource
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

import isosent
from isosent.evaluation.cqa import read_cqa
from isosent.evaluation.sts import read_sts
from isosent.numeric.neighbors import nearest_others
from isosent.numeric.similarity import unit_rows
from isosent.search import cluster, find_duplicates
from isosent.search.chance import Chance

RATE = 0.01
MOST_TEXTS = 2500
TUNED = {"mnli", "mr", "cr", "cqa", "korean"} | {"domains", "trec-6", "cqa-categories", "korsts"}
NUMBERS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 30, 50)


def lines(path, encoding="utf-8"):
    return [line.strip() for line in path.read_text(encoding).splitlines() if line.strip()]


def corpora(data):
    """Texts of which few are duplicates: one of each pair, sentences of reviews and plots, questions."""
    jsonl = {name: [json.loads(line) for line in lines(data / f"nli/{name}/dev.jsonl")] for name in ("mnli", "snli")}
    senteval = data / "senteval"
    found = {name: [row["premise"] for row in rows] for name, rows in jsonl.items()}
    for name, parts in (
        ("mr", ("MR/rt-polarity.pos", "MR/rt-polarity.neg")),
        ("cr", ("CR/custrev.pos", "CR/custrev.neg")),
        ("subj", ("SUBJ/subj.objective", "SUBJ/subj.subjective")),
    ):
        found[name] = [text for part in parts for text in lines(senteval / part, "latin-1")]
    found["trec"] = [line.split(" ", 1)[1] for line in lines(senteval / "TREC/train_5500.label", "latin-1")]
    found["cqa"] = [text for part in read_cqa(data / "cqa") for each in part.questions for text in each.candidates]
    found["korean"] = [line.split("\t")[0] for line in lines(data / "kornlu/KorNLI/xnli.test.ko.tsv")[1:]]
    rng = np.random.default_rng(0)
    for name, texts in found.items():
        distinct = list(dict.fromkeys(text.strip() for text in texts if text.strip()))
        found[name] = [distinct[row] for row in np.sort(rng.permutation(len(distinct))[:MOST_TEXTS])]
    return found


def edited(text, rng, share):
    """A copy with so many of its words dropped, swapped or misspelled."""
    words = text.split()
    for _ in range(max(1, round(share * len(words)))):
        place, other, kind = rng.integers(len(words)), rng.integers(len(words)), rng.integers(3)
        word = words[place]
        if kind == 0 and len(words) > 2:
            words.pop(place)
        elif kind == 1 and len(word) > 3:
            at = rng.integers(1, len(word) - 2)
            words[place] = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
        else:
            words[place], words[other] = words[other], words[place]
    return " ".join(words)


def planted(texts, rng):
    """Texts with 150 edited copies, half of them with 10% and half with 25% of the words, and families of copies."""
    sizes = [1] * 150 + [9] * 8 + [30] * 4
    rows = rng.permutation(len(texts))[: len(sizes)]
    result, groups = list(texts), []
    for number, (row, size) in enumerate(zip(rows.tolist(), sizes, strict=True)):
        copies = [edited(texts[row], rng, 0.25 if number % 2 else 0.1) for _ in range(size)]
        groups.append([row, *range(len(result), len(result) + size)])
        result += copies
    return result, groups


def in_groups(found):
    """Number of the group of each text; -1 for none."""
    labels = np.full(len(found.texts), -1)
    for number, rows in enumerate(found.groups):
        labels[list(rows)] = number
    return labels


def nearest(model, texts):
    units = unit_rows(model.encode(texts)).astype(np.float32)
    cosines, places = nearest_others(units, 1)
    return units, cosines[:, 0], places[:, 0]


def rates(data, models):
    """Texts in a group that were not planted, and planted texts that are; by three rules."""
    for name, reference in models:
        model = isosent.load(reference)
        rows, null = [], []
        for corpus, texts in corpora(data).items():
            mixed, groups = planted(texts, np.random.default_rng(5))
            units, cosines, places = nearest(model, mixed)
            free = np.setdiff1d(np.arange(len(texts)), [row for group in groups for row in group])
            if corpus in TUNED and corpus != "korean":  # its cosines are all near 0.9 with these models
                null.append(cosines[free])
            rows.append((corpus, texts, mixed, groups, units, cosines, places, free))
        cosine = float(np.quantile(np.concatenate(null), 1 - RATE))
        for corpus, texts, mixed, groups, units, cosines, places, free in rows:
            labels = in_groups(find_duplicates(mixed, model, false_positives=RATE))
            chance = Chance.fit(units, n_rows=len(units))
            matches = chance.is_match(units, units[places, None], cosines[:, None], false_positives=RATE)[:, 0]
            pairs = np.array([group for group in groups if len(group) == 2])
            families = defaultdict(list)
            for group in groups:
                largest = np.bincount(labels[group] + 1)[1:].max(initial=0)
                families[len(group)].append(largest / len(group) if largest > 1 else 0)
            alone = in_groups(find_duplicates(texts, model, false_positives=RATE))
            yield {
                "model": name,
                "corpus": corpus,
                "part": "tuned" if corpus in TUNED else "other",
                "texts": len(mixed),
                "grouped, nothing planted": float(np.mean(alone >= 0)),
                "grouped": float(np.mean(labels[free] >= 0)),
                "grouped, one cosine": float(np.mean(cosines[free] > cosine)),
                "grouped, chance of search": float(matches[free].mean()),
                "recall": float(np.mean((labels[pairs[:, 0]] >= 0) & (labels[pairs[:, 0]] == labels[pairs[:, 1]]))),
                "recall, one cosine": float(np.mean(np.einsum("ij,ij->i", *units[pairs.T]) > cosine)),
                "recall, families of 10": float(np.mean(families[10])),
                "recall, families of 31": float(np.mean(families[31])),
            }


FRONT = ("Again,", "Folks,", "Oh,", "Quick one:", "Seriously,", "Dear team,", "Btw,", "Evening,")
BEHIND = ("Any ideas?", "Many thanks!", "soon", "honestly", "Best wishes", "Help!", "pls advise", "!!")
CHANGES = ("typo", "front", "behind", "dropped", "upper")
N_CHANGED = 60  # copies of each change
NEGATED = re.compile(r"\d|n't$|n\u2019t$|^(not|no|never|without|cannot|cant|dont|nor)\W*$", re.IGNORECASE)


def pools(data):
    """Texts and their categories; those of the first pool were used for tuning."""
    rng = np.random.default_rng(0)

    def distinct(pairs):
        found = {}
        for text, category in pairs:
            if joined := " ".join(text.split()):
                found.setdefault(joined.lower(), (joined, category))
        return list(found.values())

    with (data / "tasks/banking77/train.csv").open(encoding="utf-8", newline="") as file:
        rows = distinct((row["text"], row["category"]) for row in csv.DictReader(file))
    places = rng.permutation(len(rows))
    yield "Banking77, tuned", [rows[place] for place in places[:5000]]
    yield "Banking77, held out", [rows[place] for place in places[5000:]]
    tasks, trec = data / "tasks/stackoverflow", lines(data / "senteval/TREC/train_5500.label", "latin-1")
    rows = distinct(zip(lines(tasks / "StackOverflow.txt"), lines(tasks / "StackOverflow_gnd.txt"), strict=True))
    yield "StackOverflow titles", [rows[place] for place in rng.permutation(len(rows))[:5000]]
    rows = distinct(reversed(line.split(" ", 1)) for line in trec)
    yield "TREC questions", [rows[place] for place in rng.permutation(len(rows))[:2500]]
    korean = [(line.split("\t")[0], None) for line in lines(data / "kornlu/KorNLI/xnli.test.ko.tsv")[1:]]
    rows = distinct(korean)
    yield "Korean sentences", [rows[place] for place in rng.permutation(len(rows))[:2000]]
    questions = [text for part in read_cqa(data / "cqa") for each in part.questions for text in each.candidates]
    yield "forum questions (CQA)", distinct((text, None) for text in questions)
    captions = [(json.loads(line)["premise"], None) for line in lines(data / "nli/snli/dev.jsonl")]
    rows = distinct(captions)
    yield "captions (SNLI)", [rows[place] for place in rng.permutation(len(rows))[:2000]]


def misspelled(word, rng):
    kind, at = rng.integers(3), int(rng.integers(1, len(word) - 1))
    if kind == 0:
        return word[:at] + word[at + 1 :]
    if kind == 1:
        return word[:at] + word[at] + word[at:]
    at = min(at, len(word) - 2)
    return word[:at] + word[at + 1] + word[at] + word[at + 2 :]


def changed(text, kind, rng):
    """A copy of a text with one change; None if it has no word for that."""
    words = text.split()
    if kind == "upper":
        words = [word.upper() for word in words]
    elif kind == "front":
        words.insert(0, FRONT[rng.integers(len(FRONT))])
    elif kind == "behind":
        words.append(BEHIND[rng.integers(len(BEHIND))])
    elif kind == "typo":
        places = [place for place, word in enumerate(words) if len(word) >= 5 and word.isalpha()]
        if not places:
            return None
        place = places[rng.integers(len(places))]
        words[place] = misspelled(words[place], rng)
    else:  # numbers and negations stay
        places = [place for place, word in enumerate(words) if not NEGATED.search(word)]
        if len(words) < 4 or not places:
            return None
        words.pop(places[rng.integers(len(places))])
    return " ".join(words)


def changes(data, models):
    """Planted copies that are found, for each kind of change, and contrasts and categories that are joined."""
    contrasts = [line.split("|")[1:] for line in lines(Path(__file__).parents[1] / "tests/unit/contrasts.txt")]
    for name, reference in models:
        model = isosent.load(reference)
        for pool, rows in pools(data):
            texts, categories = map(list, zip(*rows, strict=True))
            rng = np.random.default_rng(7)
            order, known = iter(rng.permutation(len(texts)).tolist()), {text.lower() for text in texts}
            copies = defaultdict(list)
            for kind in CHANGES:
                for row in order:
                    copy = changed(texts[row], kind, rng)
                    if copy and copy != texts[row] and (kind == "upper" or copy.lower() not in known):
                        copies[kind].append((row, len(texts)))
                        texts.append(copy)
                        categories.append(categories[row])
                    if len(copies[kind]) == N_CHANGED:
                        break
            n_texts = len(texts)
            texts += [text for pair in contrasts for text in pair]
            for rate in (0.001, 0.01, 0.05):
                found = find_duplicates(texts, model, false_positives=rate)
                labels = in_groups(found)
                joined = {
                    kind: np.mean([labels[one] == labels[other] >= 0 for one, other in copies[kind]]) for kind in copies
                }
                own = [[row for row in group if row < n_texts] for group in found.groups]
                false = sum(len({categories[row] for row in group}) > 1 for group in own)
                pairs = np.arange(n_texts, len(texts)).reshape(-1, 2)
                yield {
                    "model": name,
                    "pool": pool,
                    "texts": len(texts),
                    "rate": rate,
                    **{f"found, {kind}": round(float(share), 3) for kind, share in joined.items()},
                    "found": round(float(np.mean(list(joined.values()))), 3),
                    "contrasts joined": sum(bool(labels[one] == labels[other] >= 0) for one, other in pairs.tolist()),
                    "contrasts": len(pairs),
                    "groups": len(found.groups),
                    "groups of several categories per 1,000 texts": round(1000 * false / len(texts), 2),
                }


def labels(data, models):
    """Precision and recall of pairs that people labelled."""
    pairs = {}
    with (data / "senteval/MRPC/msr_paraphrase_test.txt").open(encoding="utf-8-sig") as file:
        fields = [line.rstrip("\n").split("\t") for line in list(file)[1:]]
    pairs["MRPC test, paraphrases"] = [(row[3], row[4], row[0] == "1") for row in fields]
    stsb = [line.split("\t") for line in lines(data / "stsbenchmark/sts-test.csv")]
    pairs["STS-B test, score 4 or more"] = [(row[5], row[6], float(row[4]) >= 4) for row in stsb]
    pairs["CQA test, relevant"] = [
        (question.text, text, bool(is_relevant))
        for part in read_cqa(data / "cqa")
        if part.name.endswith("test")
        for question in part.questions
        for text, is_relevant in zip(question.candidates, question.relevant, strict=True)
    ]
    for name, reference in models:
        model = isosent.load(reference)
        for corpus, labeled in pairs.items():
            labeled = [each for each in labeled if each[0] != each[1]]
            texts = list(dict.fromkeys(text for pair in labeled for text in pair[:2]))
            row_of = {text: row for row, text in enumerate(texts)}
            for rate in (0.01, 0.05, 0.2):
                found = find_duplicates(texts, model, false_positives=rate)
                groups = in_groups(found)
                first, second = (groups[[row_of[pair[side]] for pair in labeled]] for side in (0, 1))
                gold = np.array([pair[2] for pair in labeled])
                joined = (first >= 0) & (first == second)
                yield {
                    "model": name,
                    "corpus": corpus,
                    "texts": len(texts),
                    "rate": rate,
                    "groups": len(found.groups),
                    "in a group": found.n_duplicates,
                    "largest": max(map(len, found.groups), default=0),
                    "labelled pairs joined": int(joined.sum()),
                    "precision": float(gold[joined].mean()) if joined.any() else float("nan"),
                    "recall": float(joined[gold].mean()),
                    "share of positives": float(gold.mean()),
                }


def gold_clusters(data):
    """Texts with the set, source or category that they come from."""
    texts_of = corpora(data)
    rng = np.random.default_rng(0)

    def some(pairs, n_each):
        by_label = defaultdict(list)
        for text, label in dict.fromkeys(pairs):
            by_label[label].append(text)
        return [(each[row], label) for label, each in by_label.items() for row in rng.permutation(len(each))[:n_each]]

    names = ("mnli", "snli", "mr", "subj", "cr", "trec", "cqa")
    found = {"domains": some([(text, name) for name in names for text in texts_of[name]], 300)}
    sources = {"images": "captions", "MSRvid": "captions", "surprise.OnWN": "OnWN", "surprise.SMTnews": "news"}
    sts = [
        (text, sources.get(subset.name, subset.name))
        for task in read_sts(data / "sts")
        for subset in task.subsets
        for text in subset.texts
    ]
    found["sts-sources"] = some(sts, 200)
    six = {"headlines", "captions", "deft-forum", "answers-students", "belief", "tweet-news"}
    found["sts-6-sources"] = some([pair for pair in sts if pair[1] in six], 400)
    trec = [line.split(" ", 1) for line in lines(data / "senteval/TREC/train_5500.label", "latin-1")]
    found["trec-6"] = some([(text, label.split(":")[0]) for label, text in trec[:2500]], 2500)
    found["trec-50"] = some([(text, label) for label, text in trec[2500:]], 2500)
    stsb = [line.split("\t") for line in lines(data / "stsbenchmark/sts-train.csv")]
    found["stsb-genres"] = some([(text, row[0].rstrip("s")) for row in stsb for text in row[5:7]], 600)
    found["cqa-categories"] = cqa_categories(data)
    korsts = [
        line.split("\t")
        for part in ("train", "dev", "test")
        for line in lines(data / f"kornlu/KorSTS/sts-{part}.tsv")[1:]
    ]
    found["korsts"] = some([(text, row[0]) for row in korsts if len(row) > 6 for text in row[5:7]], 600)
    return found


def cqa_categories(data):
    """Questions of a forum by its categories with 40 or more of them."""
    from xml.etree import ElementTree

    category_of = {}
    for path in sorted((data / "cqa").rglob("*.xml")):
        for question in ElementTree.parse(path).iter("RelQuestion"):
            text = " ".join(question.findtext(part) or "" for part in ("RelQSubject", "RelQBody")).strip()
            category_of[text] = question.get("RELQ_CATEGORY")
    counts = defaultdict(int)
    for category in category_of.values():
        counts[category] += 1
    broad = {"Qatar Living Lounge", "Advice and Help", "Welcome to Qatar"}
    return [(text, each) for text, each in category_of.items() if counts[each] >= 25 and each not in broad]


def clusters(data, models):
    """Agreement of k-means with gold clusters, and the number of clusters that rules choose."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import (
        adjusted_mutual_info_score,
        adjusted_rand_score,
        calinski_harabasz_score,
        silhouette_score,
    )

    def quality(gold, places):
        return adjusted_mutual_info_score(gold, places), adjusted_rand_score(gold, places)

    for name, reference in models:
        model = isosent.load(reference)
        for corpus, pairs in gold_clusters(data).items():
            rng = np.random.default_rng(1)
            pairs = [pairs[row] for row in rng.permutation(len(pairs))[:1600]]
            texts = [text for text, _ in pairs]
            gold = np.unique([label for _, label in pairs], return_inverse=True)[1]
            units = unit_rows(model.encode(texts)).astype(np.float32)
            by_number = {}
            for number in NUMBERS:
                fitted = KMeans(number, n_init=2, max_iter=100, random_state=0).fit(units)
                agreement = []
                for seed in range(3):
                    halves = np.array_split(rng.permutation(len(units)), 2)
                    fits = [
                        KMeans(number, n_init=1, max_iter=100, random_state=seed).fit(units[half]) for half in halves
                    ]
                    agreement.append(adjusted_rand_score(*(fit.predict(units) for fit in fits)))
                by_number[number] = {
                    "quality": quality(gold, fitted.labels_),
                    "silhouette": silhouette_score(units, fitted.labels_, sample_size=800, random_state=0),
                    "calinski": calinski_harabasz_score(units, fitted.labels_),
                    "stability": float(np.mean(agreement)),
                    "inertia": float(fitted.inertia_),
                }
            chosen = {
                rule: max(NUMBERS, key=lambda n: by_number[n][rule]) for rule in ("silhouette", "calinski", "stability")
            }
            most = chosen["stability"]
            stable = [n for n in NUMBERS if by_number[n]["stability"] >= 0.6 * by_number[most]["stability"]]
            inertia = np.array([by_number[n]["inertia"] for n in NUMBERS])
            bend = (inertia - inertia[-1]) / (inertia[0] - inertia[-1]) + (np.array(NUMBERS) - 2) / 48
            chosen |= {
                "largest with 0.6 of it": stable[-1],
                "elbow": NUMBERS[int(bend.argmin())],
                "always 7": 7,
                "always 10": 10,
            }
            chosen["best in hindsight"] = max(NUMBERS, key=lambda n: sum(by_number[n]["quality"]))
            n_gold = len(np.unique(gold))
            ours = quality(gold, cluster(texts, model, n_clusters=n_gold).labels)
            plain = quality(gold, KMeans(n_gold, n_init=3, random_state=0).fit_predict(model.encode(texts)))
            yield {
                "model": name,
                "corpus": corpus,
                "part": "tuned" if corpus in TUNED else "other",
                "texts": len(texts),
                "gold": n_gold,
                "gold number": ours,
                "gold number, vectors not scaled": plain,
                "rules": {rule: (number, *by_number[number]["quality"]) for rule, number in chosen.items()},
            }


def speed(data, models):
    """Seconds and peak memory for clustered made-up vectors."""

    rng = np.random.default_rng(0)
    for n_texts in (10_000, 30_000):
        centers = rng.normal(size=(200, 256)).astype(np.float32)
        vectors = centers[rng.integers(200, size=n_texts)] + rng.normal(size=(n_texts, 256)).astype(np.float32)
        start = time.perf_counter()
        find_duplicates(None, vectors=vectors)
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        yield {"texts": n_texts, "seconds": round(seconds, 1), "peak MB": round(peak)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("changes", "rates", "labels", "clusters", "speed"))
    parser.add_argument("data", type=Path)
    parser.add_argument("models", nargs="*", help="NAME=REFERENCE")
    arguments = parser.parse_args()
    models = [tuple(each.split("=", 1)) for each in arguments.models]
    for record in globals()[arguments.what](arguments.data, models):
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
