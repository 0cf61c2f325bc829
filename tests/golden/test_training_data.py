"""What the real files give; counted with isosent 0.1.0 and, on their own, with csv, json and collections, Nov. 2026."""

import os
from pathlib import Path

import pytest

from isosent.training.data import read_dev_set, read_examples
from isosent.training.development import count_seen_texts, warn_if_seen

pytestmark = pytest.mark.data

DATA = Path(os.environ["ISOSENT_DATA"]) if "ISOSENT_DATA" in os.environ else None
if DATA is None:
    pytest.skip("ISOSENT_DATA does not say where the research sets lie", allow_module_level=True)

ENGLISH = [DATA / "nli" / name for name in ("snli/dev.jsonl", "mnli/dev.jsonl", "anli/test.jsonl")]
KLUE = DATA / "klue-nli" / "benchmark_train_data.csv"
KORNLI = DATA / "kornlu" / "KorNLI"


@pytest.mark.parametrize(
    ("files", "counts"),
    [
        (ENGLISH, {"contradiction": 7553, "entailment": 7878, "neutral": 7426}),
        ([DATA / "nli" / "scitail" / "test.jsonl"], {"entailment": 842, "not_entailment": 1284}),
        ([KLUE], {"contradiction": 9489, "entailment": 9561, "neutral": 8948}),
        ([KORNLI / "xnli.test.ko.tsv"], {"contradiction": 1670, "entailment": 1670, "neutral": 1670}),
        ([DATA / "sick" / "SICK_train.txt"], {"contradiction": 665, "entailment": 1299, "neutral": 2536}),
    ],
)
def test_pairs_with_a_class(files, counts):
    examples = read_examples("classification", files)
    assert (examples.label_counts, dict(examples.dropped)) == (counts, {})
    assert sum(source.n_rows for source in examples.sources) == len(examples)


def test_korean_is_read_in_its_encoding():
    examples = read_examples("classification", [KLUE, KORNLI / "xnli.dev.ko.tsv"])
    assert [source.encoding for source in examples.sources] == ["cp949", "UTF-8"]
    assert examples.sample(1)[0]["sentence2"] == "씨름의 여자들의 놀이이다."


def test_triplets_of_pairs_with_a_class():
    examples = read_examples("triplet", ENGLISH)
    assert len(examples) == 5996
    assert dict(examples.dropped) == {
        "of another class": 7426,
        "without a counterpart of the same premise": 3425,
        "with the same text twice": 7,
    }
    assert len(read_examples("triplet", [KLUE])) == 9047


@pytest.mark.parametrize(
    ("file", "n_pairs", "mean"),
    [
        ("stsbenchmark/sts-train.csv", 5749, 0.5402),
        ("kornlu/KorSTS/sts-train.tsv", 5749, 0.5402),
        ("stsbenchmark/sts-dev.csv", 1500, 0.4728),
        ("sick/SICK_train.txt", 4500, 0.6302),
    ],
)
def test_pairs_with_a_score(file, n_pairs, mean):
    examples = read_examples("regression", [DATA / file])
    assert len(examples) == n_pairs
    assert examples.score_summary == pytest.approx({"min": 0, "mean": mean, "max": 1}, abs=1e-4)


def test_the_benchmark_shares_pairs_between_train_and_the_rest():
    train = read_examples("regression", [DATA / "stsbenchmark" / "sts-train.csv"])
    dev, test = (read_dev_set(DATA / "stsbenchmark" / f"sts-{part}.csv") for part in ("dev", "test"))
    assert [len(dev.first), warn_if_seen(train, dev)] == [1500, 8]
    assert [len(test.first), warn_if_seen(train, test)] == [1379, 12]
    counts = {"n_texts": 2552, "n_exact": 257, "n_same": 257, "n_near": 270, "n_items": 1379, "n_items_same": 62}
    assert count_seen_texts(train, [test]) == {"sts-test": counts}
