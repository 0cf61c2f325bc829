"""The wrapper for MTEB, in the hands of its own runner, on tasks made up here. No network."""

import os
import shutil
import socket
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

import isosent
from isosent.errors import InputError, InputTypeError

mteb = pytest.importorskip("mteb")
datasets = pytest.importorskip("datasets")

from mteb.abstasks import AbsTaskClassification, AbsTaskRetrieval, AbsTaskSTS  # noqa: E402
from mteb.abstasks.task_metadata import TaskMetadata  # noqa: E402
from mteb.models import EncoderProtocol  # noqa: E402
from sentence_transformers import SentenceTransformer  # noqa: E402
from tiny_models import TEXTS, WORDS, write_json  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from isosent import evaluate  # noqa: E402
from isosent.compat.mteb import MTEBEncoder  # noqa: E402

pytestmark = pytest.mark.usefixtures("no_network", "one_thread")

ANY = {"task_metadata": None, "hf_split": "test", "hf_subset": "default"}
PAIRS = [(first, second) for i, first in enumerate(TEXTS) for second in TEXTS[i + 1 :]]
GOLD = [float(7 * i % 11) / 2 for i in range(len(PAIRS))]


@pytest.fixture
def no_network(monkeypatch):
    def connect(*_):
        raise AssertionError("a test must not use the network")

    monkeypatch.setattr(socket.socket, "connect", connect)


@pytest.fixture(scope="module")
def models(tmp_path_factory, tiny_model, wordllama):
    """A model of every kind: with a map, of word vectors, with prompts, with a map for queries."""
    words = tmp_path_factory.mktemp("words") / "words.txt"
    rows = np.random.default_rng(0).normal(size=(len(WORDS), 8))
    lines = (f"{word} {' '.join(f'{x:.4f}' for x in row)}" for word, row in zip(WORDS, rows, strict=True))
    words.write_text("\n".join(lines) + "\n", "utf-8")
    whitening = isosent.Whitening(4)
    prompted = isosent.load(f"hf:{tiny_model('bert')}?query_prompt=query: &document_prompt=passage: ")
    return {
        "a map": wordllama.fitted(isosent.demo_texts(), transform=isosent.Whitening(16)),
        "word vectors": isosent.load(f"words:{words}"),
        "a weighting that needs a corpus": isosent.load(f"words:{words}?weighting=sif").fitted(TEXTS, transform=None),
        "prompts": prompted,
        "a map for queries": prompted.fitted(TEXTS * 2, transform=whitening, queries=[*TEXTS, "find the dog"] * 2),
    }


KINDS = ("a map", "word vectors", "a weighting that needs a corpus", "prompts", "a map for queries")


def described(name, kind, score):
    return TaskMetadata(
        name=name,
        description="Made up for a test",
        dataset={"path": "none", "revision": "none"},
        type=kind,
        eval_langs=["eng-Latn"],
        main_score=score,
    )


class MadeUp:
    """A task whose data come with it."""

    def __init__(self, data):
        super().__init__()
        self.dataset, self.data_loaded = data, True

    def load_data(self, **_):
        pass


class Similarity(MadeUp, AbsTaskSTS):
    metadata = described("Similarity", "STS", "cosine_spearman")


class Search(MadeUp, AbsTaskRetrieval):
    metadata = described("Search", "Retrieval", "ndcg_at_10")


class Sorting(MadeUp, AbsTaskClassification):
    metadata = described("Sorting", "Classification", "accuracy")
    samples_per_label = 4
    n_experiments = 3


def rows(**columns):
    return datasets.Dataset.from_dict(columns)


def similarity(pairs, gold):
    first, second = (list(texts) for texts in zip(*pairs, strict=True))
    return Similarity(datasets.DatasetDict({"test": rows(sentence1=first, sentence2=second, score=list(gold))}))


@pytest.mark.parametrize(
    ("names", "prompt_type"),
    [
        (["Search-query", "Search", "Retrieval", "query"], "query"),
        (["Search", "Retrieval-query", "query"], "query"),
        (["Retrieval-query", "Retrieval", "query"], "query"),
        (["Retrieval", "query", "STS"], "query"),
        (["Retrieval-document", "Retrieval-query", "document"], "document"),
        (["Retrieval-query", "document"], "document"),
        (["Retrieval", "query"], None),
        (["query", "document", "STS"], None),
    ],
)
def test_prompts_named_after_tasks_are_those_of_the_wrapper_of_mteb(tiny_model, tmp_path, names, prompt_type):
    from mteb.models.sentence_transformer_wrapper import SentenceTransformerEncoderWrapper

    folder = Path(shutil.copytree(tiny_model("labse"), tmp_path / "folder"))
    prompts = dict(zip(names, ["find : ", "the ", "red ", "a man "], strict=False))
    write_json(folder / "config_sentence_transformers.json", {"prompts": prompts})
    library = SentenceTransformer(str(folder), device="cpu")
    role = None if prompt_type is None else mteb.types.PromptType(prompt_type)
    inputs = DataLoader(datasets.Dataset.from_dict({"text": TEXTS}), batch_size=4)
    asked = {"task_metadata": Search.metadata, "hf_split": "test", "hf_subset": "default", "prompt_type": role}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that are no tasks of MTEB
        theirs = SentenceTransformerEncoderWrapper(library)
        # it forgets the names of tasks that are made up
        theirs.model_prompts = {name: prompt for name, prompt in library.prompts.items() if prompt is not None}
        expected = theirs.encode(inputs, **asked, show_progress_bar=False)
    for model in (isosent.load(folder), isosent.wrap(library, reference=f"hf:{folder}")):
        np.testing.assert_allclose(MTEBEncoder(model).encode(inputs, **asked), expected, atol=1e-5)


def test_results_with_prompts_for_tasks_are_not_mixed_with_those_without(tiny_model, tmp_path):
    folder = Path(shutil.copytree(tiny_model("labse"), tmp_path / "folder"))
    without = MTEBEncoder(isosent.load(folder)).mteb_model_meta.revision
    write_json(folder / "config_sentence_transformers.json", {"prompts": {"STS": "find : "}})
    model = isosent.load(folder)
    assert model.fingerprint == without != MTEBEncoder(model).mteb_model_meta.revision


def scores(model, task, cache=None, name="somebody/model"):
    result = mteb.evaluate(
        MTEBEncoder(model, name), task, cache=cache, show_progress_bar=False, co2_tracker=False
    ).task_results[0]
    return result.scores["test"][0]


def cosines(first, second):
    first, second = (np.asarray(rows, dtype=np.float64) for rows in (first, second))
    return (first * second).sum(axis=1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_of_any_kind_is_scored_as_scipy_scores_it(models, kind):
    model = models[kind]
    found = scores(model, similarity(PAIRS, GOLD))
    expected = cosines(*(model.encode([pair[side] for pair in PAIRS]) for side in (0, 1)))
    assert found["cosine_spearman"] == pytest.approx(spearmanr(expected, GOLD).statistic, abs=1e-6)
    assert found["cosine_pearson"] == pytest.approx(pearsonr(expected, GOLD).statistic, abs=1e-6)
    assert found["spearman"] == pytest.approx(found["cosine_spearman"], abs=1e-6)


def test_sts_by_the_runner_is_sts_by_this_package(models, write_stsb, tmp_path):
    write_stsb(tmp_path, n_pairs=40)
    lines = [line.split("\t") for line in (tmp_path / "sts-test.csv").read_text("utf-8").splitlines()]
    theirs = scores(models["a map"], similarity([line[5:7] for line in lines], [float(line[4]) for line in lines]))
    ours = evaluate(models["a map"], tmp_path).tasks["STSB"].scores
    assert theirs["cosine_spearman"] == pytest.approx(ours["spearman"], abs=1e-6)
    assert theirs["cosine_pearson"] == pytest.approx(ours["pearson"], abs=1e-6)


@pytest.mark.data
def test_the_sts_benchmark_by_the_runner_is_that_by_this_package(wordllama):
    if "ISOSENT_DATA" not in os.environ:
        pytest.skip("ISOSENT_DATA does not say where the research sets lie")
    folder = Path(os.environ["ISOSENT_DATA"]) / "stsbenchmark"
    lines = [line.split("\t") for line in (folder / "sts-test.csv").read_text("utf-8").removesuffix("\n").split("\n")]
    theirs = scores(wordllama, similarity([line[5:7] for line in lines], [float(line[4]) for line in lines]))
    ours = evaluate(wordllama, folder).tasks["STSB"].scores
    assert theirs["cosine_spearman"] == pytest.approx(ours["spearman"], abs=1e-6)
    assert theirs["cosine_pearson"] == pytest.approx(ours["pearson"], abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_queries_and_documents_are_encoded_as_such(models, kind):
    model, queries, relevant = models[kind], TEXTS[:3], [5, 3, 4]
    task = Search(
        {
            "default": {
                "test": {
                    "corpus": rows(id=[f"d{i}" for i in range(len(TEXTS))], text=TEXTS, title=[""] * len(TEXTS)),
                    "queries": rows(id=["q0", "q1", "q2"], text=queries),
                    "relevant_docs": {f"q{i}": {f"d{found}": 1} for i, found in enumerate(relevant)},
                    "top_ranked": None,
                }
            }
        }
    )
    asked, documents = model.encode_query(queries), model.encode_document(TEXTS)
    ranked = [np.argsort(-cosines(row[None], documents)) for row in asked]
    places = [list(ranking).index(found) + 1 for ranking, found in zip(ranked, relevant, strict=True)]
    found = scores(model, task)
    assert found["ndcg_at_10"] == pytest.approx(np.mean([1 / np.log2(place + 1) for place in places]), abs=1e-5)
    assert found["mrr_at_10"] == pytest.approx(np.mean([1 / place for place in places]), abs=1e-5)


def test_texts_of_two_kinds_are_told_apart(models):
    of_animals, of_water = (
        ["a dog", "the horse", "the dog", "a horse"],
        ["the river", "a river", "river", "the red river"],
    )
    part = rows(text=of_animals + of_water, label=[0] * 4 + [1] * 4)
    task = Sorting(datasets.DatasetDict({"train": part, "test": part}))
    assert scores(models["word vectors"], task)["accuracy"] == 1.0


def test_results_are_kept_by_vector_space(models, tmp_path, monkeypatch):
    cache, encoded = mteb.cache.ResultCache(tmp_path), []
    encode = MTEBEncoder.encode
    monkeypatch.setattr(MTEBEncoder, "encode", lambda self, *a, **k: encoded.append(1) or encode(self, *a, **k))
    task = similarity(PAIRS, GOLD)
    first, again, other = (
        scores(models[kind], task, cache)["cosine_spearman"] for kind in ("prompts", "prompts", "a map for queries")
    )
    assert again == pytest.approx(first, abs=1e-5)  # the cache rounds
    assert other != pytest.approx(first, abs=1e-5)
    assert len(encoded) == 4  # the two sides of the pairs, for two vector spaces


def test_an_empty_text_is_unlike_any_other(models):
    empty = MTEBEncoder(models["word vectors"]).encode([{"text": ["", "a dog"]}], **ANY)
    encoder = MTEBEncoder(models["word vectors"])
    assert encoder.similarity_pairwise(empty[:1], empty[1:]).tolist() == [0.0]


@pytest.mark.parametrize("kind", KINDS)
def test_batches_may_be_empty_or_arrays(models, kind):
    encoder = MTEBEncoder(models[kind])
    assert isinstance(encoder, EncoderProtocol)
    assert encoder.encode([], **ANY).shape == (0, models[kind].dim)
    batches = [{"text": []}, {"text": np.array(TEXTS[:2])}, {"text": tuple(TEXTS[2:])}]
    found = encoder.encode(batches, **ANY, batch_size=np.int64(2), show_progress_bar=False)
    np.testing.assert_array_equal(found, models[kind].encode(TEXTS))
    assert found.dtype == np.float32


def test_what_is_no_text_no_model_or_no_name_is_refused(models):
    model = models["word vectors"]
    with pytest.raises(InputError, match=r"a batch must hold text; got image, label\."):
        MTEBEncoder(model).encode([{"image": [1], "label": [2]}], **ANY)
    with pytest.raises(InputTypeError, match=r"must be a SentenceEncoder; got str\. Use isosent\.load\("):
        MTEBEncoder("wordllama")
    for name in ("model", "/model", "owner/", ""):
        with pytest.raises(InputError, match="name must have the form owner/name; got"):
            MTEBEncoder(model, name)


def test_the_record_names_the_vector_space(models):
    meta = MTEBEncoder(models["a map"], "somebody/whitened").mteb_model_meta
    assert (meta.name, meta.revision, meta.embed_dim) == ("somebody/whitened", models["a map"].fingerprint, 16)
    assert meta.similarity_fn_name == "cosine"
