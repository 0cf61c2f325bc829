"""A transform from matching pairs, on pairs that had no part in it: what is saved, what it gains, what it harms.

python bench/pairs.py DATA [--multilingual DIR] [--draws N] [--gradient] [--groups] [--markdown]
DATA holds stsbenchmark, sick, senteval/MRPC, rte, nli and cqa; a kind is a genre or a topic. --multilingual: `data` of
github.com/PhilipMay/stsb-multi-mt (stsb-LANG-train.csv). --gradient also descends on the same map by torch. --groups:
instead, a map of each language (stsb-LANG-test.csv), next to ways that need no pairs.
In each draw, n pairs are given to `fitted_on_pairs`; up to 1,000 others, which share no text with them, are queries
among the second texts of all others. `shuffled` pairs match by chance: nothing should be saved.
"""

import argparse
import csv
import json
import re
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np

import isosent
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.moments import JointMoments
from isosent.numeric.ranking import cosine_ranks
from isosent.numeric.similarity import nonzero_rows, unit_rows
from isosent.transforms.pairs import GROUP_PENALTIES, MapCandidate, MatchingPairs, choose_from_pairs

SIZES = (50, 300, 2000)
N_QUERIES = 1000
LANGUAGES = ("en", "de", "es")
DIRECTIONS = (("en", "de"), ("en", "es"), ("de", "en"), ("es", "en"))
PLAIN = MapCandidate("whitening", (("strength", 0.5),))


def lines(path, encoding="utf-8"):
    return path.read_text(encoding=encoding).splitlines()


def stsb(data, least=4.0):
    paths = [data / f"stsbenchmark/sts-{part}.csv" for part in ("train", "dev", "test")]
    rows = [line.split("\t") for path in paths for line in lines(path)]
    return [(row[5], row[6], row[0]) for row in rows if float(row[4]) >= least]


def sick(data):
    rows = [line.split("\t") for path in sorted((data / "sick").glob("SICK_*.txt")) for line in lines(path)[1:]]
    return [(row[1], row[2], "sick") for row in rows if float(row[3]) >= 4.3]


def mrpc(data):
    paths = sorted((data / "senteval/MRPC").iterdir())
    rows = [line.split("\t") for path in paths for line in lines(path, "utf-8-sig")[1:]]
    return [(row[3], row[4], "news") for row in rows if row[0] == "1"]


def rte(data):
    rows = [line.split("\t") for part in ("train", "dev") for line in lines(data / f"rte/{part}.tsv")[1:]]
    return [(row[2], row[1], "rte") for row in rows if row[3] == "entailment"]


def nli(data, name):
    """A hypothesis is the query, and the premise that it follows from the document."""
    [path] = (data / "nli" / name).iterdir()
    rows = [json.loads(line) for line in lines(path)]
    return [(row["hypothesis"], row["premise"], name) for row in rows if row["label"] in ("entailment", "entails", "e")]


def forum(data):
    """Questions of a forum, and older ones that ask the same."""
    questions, pairs = {}, []
    for path in sorted((data / "cqa").glob("*/*.xml")):
        for question in ElementTree.parse(path).getroot().iter("OrgQuestion"):
            related = question.find(".//RelQuestion")
            texts = [question.findtext("OrgQBody"), related.findtext("RelQSubject"), related.findtext("RelQBody")]
            questions[related.get("RELQ_ID")] = [text or "" for text in texts]
    for path in sorted((data / "cqa").glob("*/*.relevancy")):
        for _, related, *_, relevant in (line.split("\t") for line in lines(path)):
            if relevant == "true":
                body, *older = questions[related]
                pairs.append((body, " ".join(older), "forum"))
    return pairs


def answers(data):
    """Questions of a forum, good answers, and the topic."""
    [path] = (data / "cqa/2016-dev").glob("*.xml")
    pairs = []
    for thread in ElementTree.parse(path).getroot().iter("Thread"):
        related = thread.find("RelQuestion")
        question = f"{related.findtext('RelQSubject')} {related.findtext('RelQBody') or ''}"
        good = [each for each in thread.iter("RelComment") if each.get("RELC_RELEVANCE2RELQ") == "Good"]
        pairs += [(question, each.findtext("RelCText") or "", related.get("RELQ_CATEGORY")) for each in good]
    return pairs


def translations(folder, data, language):
    """Sentences of another language, and English ones that they translate."""
    sides = [list(csv.reader(lines(folder / f"stsb-{each}-train.csv"))) for each in (language, "en")]
    genres = [line.split("\t")[0] for line in lines(data / "stsbenchmark/sts-train.csv")]
    return [(one[0], other[0], genre) for one, other, genre in zip(*sides, genres, strict=True)]


def usable(pairs):
    """Different pairs, of which each text occurs once, so that those to fit and to test share none."""
    seen, kept = set(), []
    for first, second, kind in pairs:
        if first.strip() and second.strip() and first != second and not {first, second} & seen:
            seen |= {first, second}
            kept.append((first, second, kind))
    return kept


def reciprocal(x, y, rows, linear_map=None, *, queries_only=False):
    """Mean reciprocal rank of the partners of the first rows among all."""
    queries, documents = x[rows][:N_QUERIES], y[rows]
    if linear_map is not None:
        queries = linear_map.apply(queries)
        documents = documents if queries_only else linear_map.apply(documents)
    place = np.arange(len(queries))
    ranks = cosine_ranks(queries.astype(np.float32), documents.astype(np.float32), np.stack([place, place], axis=1))
    return 100 * float((1 / ranks).mean())


def descended(x, y, *, queries_only, steps=300, temperature=0.05, decay=1e-3):
    """The same map by gradient descent on the cross-entropy of cosines within a batch, from the identity."""
    import torch

    torch.manual_seed(0)
    scale = np.sqrt(x.var(axis=0).mean())
    mean = np.zeros(x.shape[1]) if queries_only else (x.mean(axis=0) + y.mean(axis=0)) / 2
    a, b = (torch.tensor((side - mean) / scale, dtype=torch.float32) for side in (x, y))
    change = torch.zeros(x.shape[1], x.shape[1], requires_grad=True)
    shift = torch.zeros(x.shape[1], requires_grad=True)
    optimizer = torch.optim.AdamW([change, shift], lr=1e-3, weight_decay=decay)
    for _ in range(steps):
        batch = torch.randperm(len(a))[:256]
        queries = a[batch] + a[batch] @ change + shift
        documents = b[batch] if queries_only else b[batch] + b[batch] @ change + shift
        cosines = torch.nn.functional.normalize(queries) @ torch.nn.functional.normalize(documents).T / temperature
        loss = torch.nn.functional.cross_entropy(cosines, torch.arange(len(batch)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    weight = np.eye(x.shape[1]) + change.detach().numpy().astype(np.float64)
    return LinearMap(weight, shift.detach().numpy() * scale - mean @ weight)


def measured(name, model, pairs, sizes, *, n_draws, gradient, shuffled=False, within=None):
    """One row per size and kind of map. `within`: fit on this kind, and test on all others."""
    pairs = usable(pairs)
    x, y = (model.encode([pair[side] for pair in pairs]).astype(np.float64) for side in (0, 1))
    has_vectors = np.flatnonzero(nonzero_rows(x) & nonzero_rows(y))
    kinds = np.array([pair[2] for pair in pairs])
    for n_pairs in sizes:
        for queries_only in (False, True):
            totals = {}
            for draw in range(n_draws):
                rows = np.random.default_rng(draw).permutation(has_vectors)
                fitted, tested = rows[:n_pairs], rows[n_pairs:]
                if within is not None:
                    fitted = rows[kinds[rows] == within][:n_pairs]
                    tested = rows[kinds[rows] != within]
                if len(fitted) < n_pairs or len(tested) < 40:
                    break
                documents = y[fitted][np.random.default_rng(draw).permutation(n_pairs)] if shuffled else y[fitted]
                several = len(set(kinds[fitted])) > 1
                began = time.perf_counter()
                keys = fitted.tolist(), [f"d{row}" for row in fitted]
                matching = MatchingPairs(x[fitted], documents, *keys, kinds[fitted] if several else None)
                choice = choose_from_pairs(matching, queries_only=queries_only)
                seconds = time.perf_counter() - began
                joint = JointMoments.from_rows(x[fitted], documents)
                before = reciprocal(x, y, tested)
                saved = before
                if choice.linear_map is not None:
                    saved = reciprocal(x, y, tested, choice.linear_map, queries_only=queries_only)
                values = {
                    "before": before,
                    "whitening 0.5": reciprocal(x, y, tested, PLAIN.fit(joint)) - before,
                    "saved": saved - before,
                    "n_saved": choice.linear_map is not None,
                    "n_harmed": saved < before,
                    "seconds": seconds,
                }
                if gradient:
                    by_steps = descended(x[fitted], documents, queries_only=queries_only)
                    values["gradient"] = reciprocal(x, y, tested, by_steps, queries_only=queries_only) - before
                for key, value in values.items():
                    totals.setdefault(key, []).append(float(value))
            if totals:
                counts = {key: int(sum(totals.pop(key))) for key in ("n_saved", "n_harmed")}
                spread = {f"{key} sd": float(np.std(totals[key])) for key in ("saved", "gradient") if key in totals}
                means = {key: float(np.mean(values)) for key, values in totals.items()}
                side = "queries" if queries_only else "both"
                yield {"data": name, "n": n_pairs, "side": side, "draws": n_draws} | means | spread | counts


def found(vectors, queries, n_texts):
    """Share of sentences whose translation is among the ten nearest of all others, of and from each language."""
    units = unit_rows(np.concatenate(list(vectors.values())))
    shares = []
    for directions in DIRECTIONS:
        rows, partners = (queries + LANGUAGES.index(each) * n_texts for each in directions)
        cosines = units[rows] @ units.T
        wanted = cosines[np.arange(len(rows)), partners]
        cosines[np.arange(len(rows)), rows] = -np.inf
        shares.append(100 * float(((cosines > wanted[:, None]).sum(axis=1) < 10).mean()))
    return shares


def ways_of_languages(model, texts, fitted, kinds):
    """The vectors of each language, fitted on some rows: without pairs, by penalty, and what `fit --pairs` saves."""
    raw = {each: model.encode(of) for each, of in texts.items()}
    pool = [texts[each][row] for each in texts for row in fitted]
    labels = [each for each in texts for _ in fitted]
    yield "as it is", raw
    for name, transform, erase in (
        ("whitening 0.5", "whitening", None),
        ("whitening 1", "whitening", None),
        ("erased", None, labels),
        ("erased, whitening 0.5", "whitening", labels),
    ):
        settings = None if transform is None else {"strength": float(name.split()[-1]), "shrinkage": "oas"}
        other = model.fitted(pool, transform, settings=settings, erase=erase)
        yield name, {each: other.transform(of) for each, of in raw.items()}
    for penalty in GROUP_PENALTIES:
        maps = {
            each: JointMoments.from_rows(of[fitted], raw["en"][fitted]).ridge(penalty, towards=np.eye(of.shape[1]))
            for each, of in raw.items()
        }
        yield (
            f"a map of each, penalty {penalty:g}",
            {each: of if each == "en" else maps[each].apply(of) for each, of in raw.items()},
        )
    for name, of_pairs in (("saved", None), ("saved, genres held out", kinds)):
        if of_pairs is None or len(set(of_pairs[fitted])) > 1:
            groups = [each for each in texts if each != "en" for _ in fitted], ["en"] * 2 * len(fitted)
            first = [texts[each][row] for each in texts if each != "en" for row in fitted]
            second = [texts["en"][row] for row in fitted] * 2
            of_each = None if of_pairs is None else np.tile(of_pairs[fitted], 2).tolist()
            saved = model.fitted_on_pairs(first, second, groups={"lang": groups}, kinds=of_each)
            choice = saved.fits[-1].choice["chosen"]
            group = {each: None if saved.groups is None else each for each in texts}
            yield f"{name}: {choice}", {each: saved.transform(of, group=group[each]) for each, of in raw.items()}


def languages(model, folder, data, *, n_draws):
    """One row per way: mean share of translations found in one pool of three languages, over the draws."""
    texts = {each: [row[0] for row in csv.reader(lines(folder / f"stsb-{each}-test.csv"))] for each in LANGUAGES}
    kinds = np.array([line.split("\t")[0] for line in lines(data / "stsbenchmark/sts-test.csv")])
    _, number = np.unique(texts["en"], return_inverse=True)
    n_texts, n_distinct = len(number), number.max() + 1
    first = np.unique(number, return_index=True)[1]
    for name, genres in (
        ("half of the sentences", ()),
        ("captions, tested on forums and news", ("main-captions",)),
        ("captions and news, tested on forums", ("main-captions", "main-news")),
    ):
        totals = {}
        for draw in range(1 if genres else n_draws):
            is_fitted = np.random.default_rng(draw).permutation(n_distinct) < n_distinct // 2
            if genres:
                is_fitted = np.isin(kinds[first], genres)
            fitted, queries = np.flatnonzero(is_fitted[number]), first[~is_fitted]
            for way, vectors in ways_of_languages(model, texts, fitted, kinds):
                way, _, choice = way.partition(": ")
                totals.setdefault(way, []).append((found(vectors, queries, n_texts), choice))
        for way, draws in totals.items():
            shares = np.mean([share for share, _ in draws], axis=0)
            counts = {"n_fitted": len(fitted), "n_queries": len(queries), "pool": 3 * n_texts}
            chosen = {"chosen": sorted({choice for _, choice in draws if choice})}
            yield {
                "data": name,
                **counts,
                "way": way,
                **dict(zip(map(" to ".join, DIRECTIONS), shares, strict=True)),
                **chosen,
            }


def markdown_of_languages(rows):
    """One line per way, and a heading per set of pairs."""
    for number, row in enumerate(rows):
        if not number or row["data"] != rows[number - 1]["data"]:
            print(f"\n{row['data']}: {row['n_fitted']} pairs each, {row['n_queries']} queries, pool {row['pool']:,}\n")
            print(f"| | {' | '.join(map(' to '.join, DIRECTIONS))} | chosen |\n|---|---|---|---|---|---|")
        shares = " | ".join(f"{row[' to '.join(each)]:.0f}" for each in DIRECTIONS)
        print(f"| {row['way']} | {shares} | {'; '.join(row['chosen'])} |")


def markdown(rows):
    """One line per set and size: both sides, and queries only."""
    print("| pairs | n | MRR | whitening 0.5 | both sides | saved, worse | queries only | saved, worse |")
    print("|---|---|---|---|---|---|---|---|")
    for both, queries in zip(rows[::2], rows[1::2], strict=True):
        cells = [f"{each['saved']:+.1f} | {each['n_saved']}, {each['n_harmed']}" for each in (both, queries)]
        start = f"| {both['data']} | {both['n']:,} | {both['before']:.1f} | {both['whitening 0.5']:+.1f} |"
        print(f"{start} {' | '.join(cells)} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--multilingual", type=Path)
    parser.add_argument("--model", default="wordllama")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--only", help="a regular expression of the names of sets")
    parser.add_argument("--gradient", action="store_true")
    parser.add_argument("--groups", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    folder, loaded = arguments.data, isosent.load(arguments.model)
    if arguments.groups:
        rows = list(languages(loaded, arguments.multilingual, folder, n_draws=arguments.draws))
        if arguments.markdown:
            markdown_of_languages(rows)
        else:
            print(*map(json.dumps, rows), sep="\n")
        raise SystemExit
    sets = [
        ("STS-B, scored 4 or more", stsb(folder), {}),
        ("SICK, scored 4.3 or more", sick(folder), {}),
        ("MRPC, paraphrases", mrpc(folder), {}),
        ("RTE, hypothesis to text", rte(folder), {}),
        ("ANLI, hypothesis to paragraph", nli(folder, "anli"), {}),
        ("SNLI, hypothesis to caption", nli(folder, "snli"), {}),
        ("forum, same question", forum(folder), {}),
        ("forum, question to answer", answers(folder), {}),
        ("shuffled SNLI", nli(folder, "snli"), {"shuffled": True}),
    ]
    for language in ("de", "es") if arguments.multilingual else ():
        translated = translations(arguments.multilingual, folder, language)
        sets.append((f"{language} to English", translated, {}))
        sets.append((f"{language} to English, captions to news and forums", translated, {"within": "main-captions"}))
    found = []
    for label, pairs, settings in sets:
        if arguments.only is None or re.search(arguments.only, label):
            for row in measured(
                label, loaded, pairs, arguments.sizes, n_draws=arguments.draws, gradient=arguments.gradient, **settings
            ):
                found.append(row)
                if not arguments.markdown:
                    print(json.dumps(row), flush=True)
    if arguments.markdown:
        markdown(found)
