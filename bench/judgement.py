"""What transforms do to pairs, topics, classes and retrieval, what signals without labels say, and which rule holds.

Step 1 encodes the texts of all tasks, once per encoder: python bench/judgement.py encode CACHE DATA FAMILY=REFERENCE
  ... [--limit N]. Layers of one network (hf:FOLDER?layers=1&pooling=mean) are computed in one pass.
Step 2 measures cells (an encoder on a corpus), one JSON line each: python bench/judgement.py measure CACHE DATA
  FAMILY=REFERENCE ... [--limit N] [--corpora NAME ...] >> cells.jsonl.
Step 3 prints the tables of docs/research/auto.md: python bench/judgement.py report cells.jsonl.
A check without labels that failed: python bench/judgement.py halves DATA REFERENCE ...: each abstract of Cranfield is
split in two, and one half searched by the other, next to nDCG@10 of the queries.
Every transform is fitted on the distinct texts of the corpus, and all vectors are compared by cosine.
"""

import argparse
import csv
import hashlib
import json
import re
import sys
import warnings
from functools import partial
from itertools import product
from pathlib import Path
from urllib.parse import parse_qsl
from xml.etree import ElementTree

import numpy as np
from sklearn.cluster import MiniBatchKMeans
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import v_measure_score
from sklearn.utils.extmath import randomized_svd

from isosent import load
from isosent.evaluation.cqa import read_cqa
from isosent.evaluation.sts import read_scored_pairs, read_sts
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import nonzero_rows, pairwise_cosine, spearman, unit_rows
from isosent.numeric.spectrum import effective_rank, spectrum
from isosent.numeric.statistics import central_interval
from isosent.transforms.agreement import sample_pairs, words_of
from isosent.transforms.auto import (
    LIMITS,
    STRENGTHS,
    Candidate,
    ScoredCandidate,
    TopicalGain,
    _score,
    pick,
    under,
)
from isosent.transforms.base import PURPOSES

NAMES = {100: "topics", 200: "topics200"}  # dimensions of the space of topics
KINDS = ("pairs", "topics", "classes", "retrieval")
CONSTANTS = list(product((0.01, 0.02, 0.03), (0.005, 0.0075, 0.01, 0.0125, 0.015), (0.5, 0.75, 1.0)))
SUMS = list(product((0.015, 0.02, 0.03, 0.04), (1, 1.5, 2, 2.5, 3, 3.5)))  # limit of pairs, and of the sum
HARM = -1.0
LOSS = 4  # what a point that is lost may weigh, against one that is gained
CENTER = "center"
CANDIDATES = {
    "none": Candidate(),
    CENTER: Candidate("mean_centering"),
    **{f"{strength:g}": Candidate("whitening", strength) for strength in STRENGTHS},
}
SEEDS = 10
SHOTS = 8


class Corpus:
    """Distinct texts, and the tasks that are scored on their vectors; other texts are mapped but not fitted on."""

    def __init__(self, name, texts, others=()):
        self.name = name
        self.texts = list(dict.fromkeys(texts))
        self.others = list(dict.fromkeys(others))
        self.row_of = {text: row for row, text in enumerate(self.texts)}
        self.row_of_other = {text: row for row, text in enumerate(self.others)}
        self.tasks = {}  # kind: function of (vectors, vectors of the others)


def rng_of(name):
    return np.random.default_rng(int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little"))


# ------------------------------------------------------------------------------------------------ scores of tasks


def pairs_score(first, second, gold, vectors, others):
    return 100 * spearman(pairwise_cosine(vectors[first], vectors[second]), gold)


def topics_score(labels, vectors, others):
    """v-measure of k-means with the true number of classes, as MTEB measures clustering."""
    units, n_classes = unit_rows(vectors), len(np.unique(labels))
    found = [
        v_measure_score(
            labels, MiniBatchKMeans(n_classes, batch_size=500, n_init=1, random_state=seed).fit_predict(units)
        )
        for seed in range(SEEDS)
    ]
    return 100 * float(np.mean(found))


def classes_score(labels, vectors, others):
    """Accuracy of logistic regression on 8 examples a class, ten draws, on the rest of the texts."""
    units, scores = unit_rows(vectors), []
    for seed in range(SEEDS):
        order = np.random.default_rng(seed).permutation(len(labels))
        train = np.concatenate([order[labels[order] == name][:SHOTS] for name in np.unique(labels)])
        test = np.setdiff1d(order, train)
        model = LogisticRegression(max_iter=100).fit(units[train], labels[train])
        scores.append(model.score(units[test], labels[test]))
    return 100 * float(np.mean(scores))


def ndcg(cosines, grades, k=10):
    """nDCG@10 of each query, from cosines and grades of relevance, both (n_queries, n_documents)."""
    best = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
    discount = 1 / np.log2(np.arange(2, k + 2))
    gains = (np.take_along_axis(grades, best, axis=1) * discount[: best.shape[1]]).sum(axis=1)
    ideal = (-np.sort(-grades, axis=1)[:, :k] * discount[: best.shape[1]]).sum(axis=1)
    return gains[ideal > 0] / ideal[ideal > 0]


def retrieval_score(grades, vectors, others):
    return 100 * float(ndcg(unit_rows(others) @ unit_rows(vectors).T, grades).mean())


def partners_score(first, second, vectors, others):
    """nDCG@10 of the partner of each text among all texts."""
    units, scores = unit_rows(vectors), []
    for start in range(0, len(first), 512):
        part, partner = first[start : start + 512], second[start : start + 512]
        cosines = units[part] @ units.T
        own = cosines[np.arange(len(part)), partner][:, None]
        cosines[np.arange(len(part)), part] = -2
        rank = (cosines > own).sum(axis=1)
        scores.append(np.where(rank < 10, 1 / np.log2(rank + 2), 0))
    return 100 * float(np.concatenate(scores).mean())


def cqa_score(questions, vectors, others):
    """Mean average precision of the related questions of a search engine."""
    scores = []
    for row, candidates, relevant in questions:
        if relevant.any():
            cosines = unit_rows(vectors[candidates]) @ unit_rows(others[row : row + 1])[0]
            hits = relevant[np.argsort(-cosines, kind="stable")]
            scores.append((np.cumsum(hits) / np.arange(1, len(hits) + 1))[hits].mean())
    return 100 * float(np.mean(scores))


# ------------------------------------------------------------------------------------------------------- corpora


def corpora_of(data, limit, wanted=None):
    """All corpora, made in the same way every time."""
    makers = {
        **{name: partial(sts_corpus, name) for name in ("STS12", "STS13", "STS14", "STS15", "STSB", "SICK-R")},
        "KorSTS": korsts_corpus,
        "STS12-train": partial(sts_corpus, "STS12-train"),
        "StackOverflow": stackoverflow_corpus,
        "Banking77": banking_corpus,
        "TREC": trec_corpus,
        **{name: partial(senteval_corpus, name) for name in ("SUBJ", "MR", "CR")},
        "SST5": sst_corpus,
        "SNLI": partial(nli_corpus, "snli/dev.jsonl", "SNLI"),
        "SciTail": partial(nli_corpus, "scitail/test.jsonl", "SciTail"),
        "MultiNLI": partial(nli_corpus, "mnli/dev.jsonl", "MultiNLI"),
        "MRPC": mrpc_corpus,
        "Cranfield": cranfield_corpus,
        "CQA": cqa_corpus,
    }
    return [make(Path(data), limit) for name, make in makers.items() if not wanted or name in wanted]


def drawn(name, n, limit):
    return rng_of(name).permutation(n)[:limit]


def add_labeled(corpus, texts, labels, kinds):
    label_of = dict(zip(texts, labels, strict=True))
    labels = np.unique([label_of[text] for text in corpus.texts], return_inverse=True)[1]
    if "topics" in kinds:
        corpus.tasks["topics"] = partial(topics_score, labels)
    if "classes" in kinds:
        corpus.tasks["classes"] = partial(classes_score, labels)
    return corpus


def labeled(name, texts, labels, limit, kinds):
    texts, labels = [" ".join(text.split()) for text in texts], list(labels)
    rows = [row for row in drawn(name, len(texts), limit) if texts[row]]
    return add_labeled(Corpus(name, [texts[row] for row in rows]), texts, labels, kinds)


def sts_corpus(name, data, limit):
    rows = []
    if name == "STS12-train":  # no task of isosent
        for path in sorted((data / "sts/2012-train").glob("STS.gs.*.txt")):
            inputs = path.with_name(path.name.replace("gs", "input")).read_text("utf-8").splitlines()
            for line, score in zip(inputs, path.read_text().splitlines(), strict=True):
                rows.append((*line.split("\t")[:2], float(score or "nan"), path.name))
    else:
        folder = {"STSB": "stsbenchmark", "SICK-R": "sick"}.get(name, name.replace("STS", "sts/20"))
        for part in read_sts(data / folder, tasks=[name])[0].subsets:
            rows += [(*row, part.name) for row in zip(part.first, part.second, part.scores, strict=True)]
    rows = [row for row in rows if np.isfinite(row[2])]
    rows = [rows[place] for place in drawn(name, len(rows), limit // 2)]
    corpus = Corpus(name, [text for a, b, *_ in rows for text in (a, b)])
    first, second = (np.array([corpus.row_of[row[side]] for row in rows]) for side in (0, 1))
    gold = np.array([row[2] for row in rows])
    corpus.tasks["pairs"] = partial(pairs_score, first, second, gold)
    same = (gold >= 4.5) & (first != second)
    if name in ("STSB", "SICK-R"):
        corpus.tasks["retrieval"] = partial(partners_score, first[same], second[same])
    if name in ("STS14", "STS15"):
        source = {text: row[3] for row in rows for text in row[:2]}
        add_labeled(corpus, list(source), list(source.values()), ("topics",))
    return corpus


def korsts_corpus(data, limit):
    pairs = read_scored_pairs(data / "kornlu/KorSTS/sts-test.tsv")
    rows = drawn("KorSTS", len(pairs.scores), limit // 2)
    chosen = [(pairs.first[row], pairs.second[row]) for row in rows]
    corpus = Corpus("KorSTS", [text for pair in chosen for text in pair])
    first, second = (np.array([corpus.row_of[pair[side]] for pair in chosen]) for side in (0, 1))
    corpus.tasks["pairs"] = partial(pairs_score, first, second, np.array(pairs.scores)[rows])
    return corpus


def stackoverflow_corpus(data, limit):
    folder = data / "tasks/stackoverflow"
    texts = (folder / "StackOverflow.txt").read_text("utf-8").split("\n")[:20000]
    labels = (folder / "StackOverflow_gnd.txt").read_text().split()
    return labeled("StackOverflow", texts, labels, limit, ("topics", "classes"))


def banking_corpus(data, limit):
    with (data / "tasks/banking77/train.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    texts, labels = ([row[key] for row in rows] for key in ("text", "category"))
    return labeled("Banking77", texts, labels, limit, ("topics", "classes"))


def trec_corpus(data, limit):
    lines = (data / "senteval/TREC/train_5500.label").read_text("latin-1").splitlines()
    labels, texts = zip(*(line.split(" ", 1) for line in lines), strict=True)
    return labeled("TREC", texts, [label.split(":")[0] for label in labels], limit, ("topics", "classes"))


def senteval_corpus(name, data, limit):
    kinds = ("topics", "classes") if name == "SUBJ" else ("classes",)
    parts = [path.read_text("latin-1").splitlines() for path in sorted((data / "senteval" / name).iterdir())]
    texts = [text for part in parts for text in part]
    return labeled(name, texts, [n for n, part in enumerate(parts) for _ in part], limit, kinds)


def sst_corpus(data, limit):
    paths = sorted((data / "senteval/SST/fine").iterdir())
    lines = [line for path in paths for line in path.read_text("utf-8").splitlines() if line.strip()]
    labels, texts = zip(*(line.split(" ", 1) for line in lines), strict=True)
    return labeled("SST5", texts, labels, limit, ("classes",))


def nli_corpus(path, name, data, limit):
    rows = [json.loads(line) for line in (data / "nli" / path).read_text("utf-8").splitlines()]
    rows = [row for row in rows if str(row["label"]) in ("entailment", "entails") and row["hypothesis"].strip()]
    rows = [rows[place] for place in drawn(name, len(rows), limit // 2)]
    corpus = Corpus(name, [row[key].strip() for row in rows for key in ("premise", "hypothesis")])
    first, second = (np.array([corpus.row_of[row[key].strip()] for row in rows]) for key in ("hypothesis", "premise"))
    apart = first != second
    corpus.tasks["retrieval"] = partial(partners_score, first[apart], second[apart])
    return corpus


def mrpc_corpus(data, limit):
    lines = (data / "senteval/MRPC/msr_paraphrase_train.txt").read_text("utf-8-sig").splitlines()[1:]
    rows = [line.split("\t") for line in lines]
    rows = [row for row in rows if row[0] == "1"]
    rows = [rows[place] for place in drawn("MRPC", len(rows), limit // 2)]
    corpus = Corpus("MRPC", [text for row in rows for text in row[3:5]])
    first, second = (np.array([corpus.row_of[row[side]] for row in rows]) for side in (3, 4))
    corpus.tasks["retrieval"] = partial(partners_score, first[first != second], second[first != second])
    return corpus


def cranfield_corpus(data, limit):
    folder = data / "tasks/cranfield"
    documents = {}
    for record in re.split(r"^\.I ", (folder / "cran.all.1400").read_text("latin-1"), flags=re.MULTILINE)[1:]:
        number, _, rest = record.partition("\n")
        parts = dict(re.findall(r"^\.([TABW])\n(.*?)(?=^\.[TABW]\n|\Z)", rest, flags=re.MULTILINE | re.DOTALL))
        body = " ".join(parts.get("W", "").split())
        documents[int(number)] = body or " ".join(parts.get("T", "").split())
    queries = [
        " ".join(record.partition(".W")[2].split())
        for record in re.split(r"^\.I ", (folder / "cran.qry").read_text("latin-1"), flags=re.MULTILINE)[1:]
    ]
    texts = {number: text for number, text in documents.items() if text}
    corpus = Corpus("Cranfield", texts.values(), queries)
    grades = np.zeros((len(corpus.others), len(corpus.texts)))
    for line in (folder / "cran.rel").read_text().splitlines():
        query, document, grade = (int(part) for part in line.split()[:3])
        if 1 <= grade <= 4 and document in texts:
            grades[corpus.row_of_other[queries[query - 1]], corpus.row_of[texts[document]]] = 1
    corpus.tasks["retrieval"] = partial(retrieval_score, grades)
    return corpus


def cqa_corpus(data, limit):
    sets = read_cqa(data / "cqa")
    questions = [question for each in sets for question in each.questions]
    corpus = Corpus("CQA", [text for each in questions for text in each.candidates], [each.text for each in questions])
    corpus.tasks["retrieval"] = partial(
        cqa_score,
        [
            (
                corpus.row_of_other[each.text],
                np.array([corpus.row_of[text] for text in each.candidates]),
                np.asarray(each.relevant),
            )
            for each in questions
        ],
    )
    category_of = {}
    for path in sorted((data / "cqa").rglob("*.xml")):
        for each in ElementTree.parse(path).iter("RelQuestion"):
            subject, body = each.findtext("RelQSubject") or "", each.findtext("RelQBody") or ""
            category_of[" ".join(f"{subject} {body}".split())] = each.get("RELQ_CATEGORY")
    known = [category_of.get(" ".join(text.split())) for text in corpus.texts]
    if sum(each is not None for each in known) > 0.9 * len(known):
        labels = np.unique([str(each) for each in known], return_inverse=True)[1]
        corpus.tasks["topics"] = partial(topics_score, labels)
    return corpus


# ------------------------------------------------------------------------------------------------------- vectors


def key_of(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_of(cache, reference, limit):
    name = "-".join(Path(part).name for part in reference.split("/"))[-60:]
    digest = hashlib.sha256(reference.encode()).hexdigest()[:8]
    return Path(cache) / f"{re.sub(r'[^A-Za-z0-9_=&.-]', '_', name)}.{digest}.{limit}.npz"


def encoded(reference, texts):
    """Vectors of texts; REFERENCE@64 keeps the first 64 dimensions, and weights of words are fitted on the texts."""
    reference, _, width = reference.partition("@")
    model = load(reference)
    if "weighting=" in reference:
        model = model.fitted(texts, transform=None)
    return model.encode(texts)[:, : int(width or model.dim)]


def encode(arguments):
    corpora = corpora_of(arguments.data, arguments.limit, arguments.corpora)
    texts = list(dict.fromkeys(text for corpus in corpora for text in (*corpus.texts, *corpus.others)))
    keys = np.array([key_of(text) for text in texts])
    groups = {}
    for each in arguments.models:
        reference = each.partition("=")[2]
        groups.setdefault(reference.partition("?")[0] if reference.startswith("hf:") else reference, []).append(
            reference
        )
    for base, references in groups.items():
        missing = [each for each in references if not file_of(arguments.cache, each, arguments.limit).exists()]
        if not missing:
            continue
        if base.startswith("hf:") and len(missing) > 1:
            plain = [each for each in missing if "static" not in each]
            encoder = load(f"{base}?max_length={arguments.max_length}").encoder
            options = [dict(parse_qsl(each.partition("?")[2])) for each in plain]
            poolings = [
                encoder.layer_pooling(each.get("layers", "-1"), each.get("pooling", "mean")) for each in options
            ]
            found = dict(zip(plain, encoder.read(texts, poolings), strict=True))
        else:
            found = {}
        for reference in missing:
            vectors = found[reference] if reference in found else encoded(reference, texts)
            with file_of(arguments.cache, reference, arguments.limit).open("wb") as file:
                np.savez(file, keys=keys, vectors=vectors.astype(np.float32))
            print(reference, vectors.shape, file=sys.stderr, flush=True)


# ------------------------------------------------------------------------------------------------------- signals


def lsa_units(texts, n_components, least=2):
    """Texts in a space of topics: words in at least two texts, sublinear tf-idf, the strongest directions, length 1."""
    try:
        tfidf = TfidfVectorizer(analyzer=words_of, sublinear_tf=True, min_df=least).fit_transform(texts)
    except ValueError:
        return None, None
    u, s, _ = randomized_svd(tfidf, min(n_components, min(tfidf.shape) - 1), random_state=0)
    return tfidf, unit_rows(u * s)


def nearest(units, queries, k):
    """The k nearest other rows of each query."""
    cosines = units[queries] @ units.T
    cosines[np.arange(len(queries)), queries] = -2
    return np.argpartition(-cosines, k, axis=1)[:, :k]


def halves_fit(vectors, has_vector, n_queries=1000, seed=0):
    rows = np.random.default_rng(seed).permutation(np.flatnonzero(has_vector))
    half = len(rows) // 2
    for here, other in ((rows[:half], rows[half:]), (rows[half:], rows[:half])):
        yield here, Moments.from_rows(vectors[other]), np.arange(min(len(here), n_queries))


def difference(values):
    """Mean, and gain with its standard error over texts, of each candidate; values (n_candidates, n_texts)."""
    gains = values - values[0]
    return [
        [float(mean), float(gain.mean()), float(gain.std() / np.sqrt(max(1, gain.size)))]
        for mean, gain in zip(values.mean(axis=1), gains, strict=True)
    ]


def signals_of(vectors, texts):
    """Every signal under every candidate: [value, gain, standard error]."""
    has_vector = nonzero_rows(vectors)
    candidates = list(CANDIDATES.values())
    found = {}
    agreements, draws = _score(vectors, has_vector, sample_pairs(texts), candidates, None)
    agreement, draw = agreements.mean(axis=0), draws.mean(axis=0)
    found["pairs"] = [
        [
            float(value),
            float(value - agreement[0]),
            float((drawn - draw[0]).std()),
            *map(float, central_interval(drawn - draw[0])),
        ]
        for value, drawn in zip(agreement, draw, strict=True)
    ]
    spaces = {size: lsa_units(texts, size)[1] for size in (100, 200)}
    tfidf = lsa_units(texts, 2)[0]
    if tfidf is None:
        return found
    values = {name: [[] for _ in candidates] for name in ("topics", "topics200", "tfidf", "coherence")}
    fitted = {"fitted on all": [[] for _ in candidates]}
    for here, moments, queries in halves_fit(vectors, has_vector):
        mapped = under(vectors[here], moments, candidates)
        for place, rows in enumerate(mapped):
            units = unit_rows(rows.astype(np.float32))
            near = nearest(units, queries, min(10, len(here) - 2))
            for size, space in spaces.items():
                part = space[here]
                ten = np.einsum("qd,qkd->qk", part[queries], part[near])
                values[NAMES[size]][place].append(ten.mean(axis=1))
            part = tfidf[here]
            values["tfidf"][place].append(
                np.mean(
                    [np.asarray(part[queries].multiply(part[near[:, k]]).sum(axis=1)).ravel() for k in range(10)],
                    axis=0,
                )
            )
            # clusters of these vectors, judged in the space of topics: mean cosine with the center of the cluster
            part, scores = spaces[100][here], []
            for seed in range(1):
                label = MiniBatchKMeans(20, batch_size=500, n_init=1, random_state=seed).fit_predict(units)
                centers = np.stack(
                    [part[label == c].mean(axis=0) if (label == c).any() else part[0] * 0 for c in range(20)]
                )
                scores.append(np.einsum("ij,ij->i", part, unit_rows(centers)[label]))
            values["coherence"][place].append(np.mean(scores, axis=0))
    for place, candidate in enumerate(candidates):
        transform = candidate.transform()
        moments = Moments.from_rows(vectors[has_vector])
        rows = (
            vectors[has_vector]
            if transform is None
            else transform.fit_moments(moments).linear_map_.apply(vectors[has_vector])
        )
        units = unit_rows(rows.astype(np.float32))
        queries = np.random.default_rng(0).permutation(len(units))[:1500]
        near = nearest(units, queries, min(10, len(units) - 2))
        part = spaces[100][has_vector]
        fitted["fitted on all"][place].append(np.einsum("qd,qkd->qk", part[queries], part[near]).mean(axis=1))
    for name, each in (values | fitted).items():
        found[name] = difference(np.stack([np.concatenate(parts) for parts in each]))
    return found


def measure(arguments):
    for each in arguments.models:
        family, _, reference = each.partition("=")
        with np.load(file_of(arguments.cache, reference, arguments.limit)) as stored:
            row_of = {key: row for row, key in enumerate(stored["keys"].tolist())}
            encoded = stored["vectors"]
        for corpus in corpora_of(arguments.data, arguments.limit, arguments.corpora):
            texts, others = (
                [hashlib.sha256(text.encode()).hexdigest()[:16] for text in part]
                for part in (corpus.texts, corpus.others)
            )
            if not all(key in row_of for key in (*texts, *others)):
                continue
            vectors, queries = (encoded[[row_of[key] for key in part]] for part in (texts, others))
            has_vector, query_has = nonzero_rows(vectors), nonzero_rows(queries) if len(queries) else np.zeros(0, bool)
            moments = Moments.from_rows(vectors[has_vector])
            scores = {kind: {} for kind in corpus.tasks}
            for name, candidate in CANDIDATES.items():
                transform = candidate.transform()
                mapped, mapped_queries = vectors, queries
                if transform is not None:
                    linear_map = transform.fit_moments(moments).linear_map_
                    mapped = linear_map.apply(vectors) * has_vector[:, None]
                    mapped_queries = linear_map.apply(queries) * query_has[:, None] if len(queries) else queries
                for kind, score in corpus.tasks.items():
                    scores[kind][name] = score(mapped, mapped_queries)
            eigen = spectrum(moments.covariance, noise=moments.rounding_variance)
            lengths = np.linalg.norm(vectors[has_vector], axis=1)
            record = {
                "family": family,
                "encoder": reference.replace(str(Path.home()), "~"),
                "corpus": corpus.name,
                "n_texts": len(texts),
                "words": float(np.mean([len(words_of(text)) for text in corpus.texts])),
                "dim": vectors.shape[1],
                "evenness": effective_rank(eigen.values[: eigen.rank]) / len(eigen.values),
                "mean": float(np.linalg.norm(moments.mean) / lengths.mean()),
                "scores": scores,
                "signals": signals_of(vectors, corpus.texts),
            }
            print(json.dumps(record), flush=True)


# -------------------------------------------------------------------------------------------------------- halves


def halved(text):
    """The sentences of a document in two parts of nearly as many words; None if they are fewer than three."""
    sentences = [each for each in re.split(r"(?<= \.) ", text) if each.strip()]
    if len(sentences) < 3:
        return None
    ends = np.cumsum([len(each.split()) for each in sentences])
    end = int(np.argmin(np.abs(ends[:-1] - ends[-1] / 2))) + 1
    return " ".join(sentences[:end]), " ".join(sentences[end:])


def halves(arguments):
    corpus = cranfield_corpus(Path(arguments.data), None)
    parts = [pair for pair in map(halved, corpus.texts) if pair is not None]
    for reference in arguments.models:
        model = load(reference)
        documents, queries = model.encode(corpus.texts), model.encode(corpus.others)
        first, second = (model.encode([pair[side] for pair in parts]) for side in (0, 1))
        moments = Moments.from_rows(documents[nonzero_rows(documents)])
        for name, candidate in CANDIDATES.items():
            transform = candidate.transform()
            mapped = [documents, queries, first, second]
            if transform is not None:
                mapped = [transform.fit_moments(moments).linear_map_.apply(rows) for rows in mapped]
            cosines = unit_rows(mapped[2]) @ unit_rows(mapped[3]).T
            rank = 1 + (cosines > np.diag(cosines)[:, None]).sum(axis=1)
            found = {
                "candidate": name,
                "ndcg@10": corpus.tasks["retrieval"](*mapped[:2]),
                "mrr": 100 * (1 / rank).mean(),
            }
            print(json.dumps({"encoder": reference, "n_pairs": len(parts), **found}), flush=True)


# -------------------------------------------------------------------------------------------------------- report


def scored(cell, signal="topics"):
    """The candidates of a cell as the rule of auto takes them."""
    found = []
    for candidate, pairs, topics in zip(
        CANDIDATES.values(), cell["signals"]["pairs"], cell["signals"][signal], strict=True
    ):
        mean, gain, error = topics
        of_topics = TopicalGain(mean, gain, gain - 1.96 * error, gain + 1.96 * error)
        found.append(ScoredCandidate(candidate, pairs[0], pairs[1], *pairs[3:], of_topics))
    return found


def chosen(cell, purpose, limits=LIMITS, signal="topics"):
    """Name of the candidate that the rule takes; "before" is the rule that looked at whitening and pairs alone."""
    usable = scored(cell, signal)[1:]
    if purpose == "before":
        purpose, usable = "pairs", usable[1:]
    picked = pick(usable, purpose, evenness=cell["evenness"], limits=limits)
    names = {candidate: name for name, candidate in CANDIDATES.items()}
    return "none" if picked is None else names[picked.candidate]


def gains_of(cells, kind, choose):
    """Gain and regret of the choice in every cell that has tasks of a kind."""
    rows = [(cell["scores"][kind], choose(cell)) for cell in cells if kind in cell["scores"]]
    gains = np.array([scores[name] - scores["none"] for scores, name in rows])
    regrets = np.array([max(scores.values()) - scores[name] for scores, name in rows])
    return gains, regrets


def summary(cells, choose):
    """Mean gain, worst cell and regret of every kind of task."""
    parts = []
    for kind in KINDS:
        gains, regrets = gains_of(cells, kind, choose)
        parts.append(f"{gains.mean():+.2f} ({gains.min():+.2f}), {regrets.mean():.2f}" if len(gains) else "")
    return " | ".join(parts)


def by_sum(cell, limits):
    """Another form of the rule: both gains beyond chance, and the greatest sum of them, each over its limit."""
    of_pairs, least = limits
    sums = {"none": least}
    for name, each in zip(CANDIDATES, scored(cell), strict=True):
        if min(each.low, each.topics.low) > 0:
            sums[name] = each.gain / of_pairs + each.topics.gain / LIMITS.topics
    return max(sums, key=sums.get)


def by_limits(cell, constants, signal="topics"):
    """The rule with other limits."""
    limits = LIMITS._replace(**dict(zip(("pairs", "topics", "topic_share"), constants, strict=True)))
    return chosen(cell, None, limits, signal)


def fewest_harmed(gains):
    """Worth of a rule: cells that lose much, then gain."""
    return -sum(int((each < HARM).sum()) for each in gains), np.mean([each.mean() for each in gains])


def greatest_gain(gains):
    """Worth of a rule: gain alone."""
    return np.mean([each.mean() for each in gains])


def weighed_losses(gains):
    """Worth of a rule: gain, where a loss counts several times."""
    return np.mean([np.where(each < 0, LOSS * each, each).mean() for each in gains])


def left_out(cells, key, rule=by_limits, constants=CONSTANTS, worth=fewest_harmed):
    """The choice in each cell by the constants that are worth most where a key has another value."""
    picked = [{id(cell): rule(cell, each) for cell in cells} for each in constants]
    best = {}
    for value in {cell[key] for cell in cells}:
        others = [cell for cell in cells if cell[key] != value]
        best[value] = max(
            picked,
            key=lambda names, part=others: worth(
                [gains_of(part, kind, lambda cell: names[id(cell)])[0] for kind in KINDS]
            ),
        )
    return lambda cell: best[cell[key]][id(cell)]


def report(arguments):
    cells = [json.loads(line) for path in arguments.cells for line in Path(path).read_text("utf-8").splitlines()]
    cells = list({(cell["encoder"], cell["corpus"]): cell for cell in cells if "topics" in cell["signals"]}.values())
    print(f"{len(cells)} cells of {len({cell['encoder'] for cell in cells})} encoders. Mean gain (worst cell), regret:")
    print(f"| choice | {' | '.join(KINDS)} |\n|---|{'---|' * len(KINDS)}")
    for purpose in ("before", None, *PURPOSES):
        print(f"| {purpose or 'default'} | {summary(cells, partial(chosen, purpose=purpose))} |")
    for name in CANDIDATES:
        print(f"| always {name} | {summary(cells, lambda cell, name=name: name)} |")
    by_family, by_corpus = left_out(cells, "family"), left_out(cells, "corpus")
    print(f"| default, families held out | {summary(cells, by_family)} |")
    print(f"| default, sets of texts held out | {summary(cells, by_corpus)} |")
    print("\nfamilies held out:")
    for family in dict.fromkeys(cell["family"] for cell in cells):
        these = [cell for cell in cells if cell["family"] == family]
        for name, choose in (("before", partial(chosen, purpose="before")), ("default", by_family)):
            print(f"| {family}, {len(these)} cells, {name} | {summary(these, choose)} |")
    print("\nanother signal in the place of topics, families held out:")
    for signal in cells[0]["signals"]:
        if signal not in ("pairs", "topics"):
            print(f"| {signal} | {summary(cells, left_out(cells, 'family', partial(by_limits, signal=signal)))} |")
    print("\nforms of the rule, by what their constants are chosen for, and the cells that lose more than 1:")
    for name, rule, constants in (("each gain", by_limits, CONSTANTS), ("sum of gains", by_sum, SUMS)):
        for worth, key in product((fewest_harmed, greatest_gain, weighed_losses), ("family", "corpus")):
            choose = left_out(cells, key, rule, constants, worth)
            n_harmed = sum(int((gains_of(cells, kind, choose)[0] < HARM).sum()) for kind in KINDS)
            print(f"| {name} | {worth.__name__} | {key} | {summary(cells, choose)} | {n_harmed} |")
    print("\nall cells, gain over none; the choice of the default and of each purpose:")
    print(f"| encoder | texts | task | {' | '.join(CANDIDATES)} | default | {' | '.join(PURPOSES)} |")
    for cell in cells:
        choices = " | ".join(chosen(cell, purpose) for purpose in (None, *PURPOSES))
        for kind, scores in cell["scores"].items():
            gains = " | ".join(f"{scores[name] - scores['none']:+.2f}" for name in list(CANDIDATES)[1:])
            encoder = cell["encoder"].rpartition("/")[2]
            print(f"| {encoder} | {cell['corpus']} | {kind} | {scores['none']:.2f} | {gains} | {choices} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, run in (("encode", encode), ("measure", measure)):
        command = commands.add_parser(name)
        command.add_argument("cache")
        command.add_argument("data")
        command.add_argument("models", nargs="+", metavar="FAMILY=REFERENCE")
        command.add_argument("--limit", type=int, default=3000)
        command.add_argument("--max-length", type=int, default=256)
        command.add_argument("--corpora", nargs="+")
        command.set_defaults(run=run)
    command = commands.add_parser("halves")
    command.add_argument("data")
    command.add_argument("models", nargs="+", metavar="REFERENCE")
    command.set_defaults(run=halves)
    command = commands.add_parser("report")
    command.add_argument("cells", nargs="+")
    command.set_defaults(run=report)
    arguments = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arguments.run(arguments)


if __name__ == "__main__":
    main()
