"""Every kind of model gives the same vectors behind a pickle, a copy, the way to a worker, and in threads."""

import copy
import json
import pickle
import shutil
from functools import cache
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest
from joblib import Parallel, delayed
from safetensors.numpy import save_file
from sklearn.base import clone
from threadpoolctl import threadpool_limits
from tiny_models import TEXTS, WORDS
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

import isosent
from isosent import GEM, SIF, USIF, Calibration, GlowFlow, L2Normalize, SentenceEncoder, Whitening, chain
from isosent.encoders.precomputed import PrecomputedVectors
from isosent.encoders.word_average import PowerMean, ZipfianWhitening
from isosent.words.word_vectors import convert_word_vectors

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore::isosent.errors.TruncationWarning"),
    pytest.mark.filterwarnings("ignore::isosent.errors.UnknownWordsWarning"),
]

FASTTEXT = Path(__file__).parents[1] / "golden" / "fasttext_tiny.bin"
WEIGHTINGS = {
    "sif": SIF(),
    "usif": USIF(),
    "p_mean": PowerMean(),
    "gem": GEM(),
    "zipfian": ZipfianWhitening(),
    "zipfian-gem": ZipfianWhitening(GEM()),
}
TRANSFORMS = {
    "whitening": Whitening(128),
    "zca": Whitening(method="zca"),
    "all_but_the_top": isosent.AllButTheTop(),
    "normalized": chain(Whitening(64), L2Normalize()),
    "flow": GlowFlow(),
    "flow-matrix": GlowFlow(mixing="matrix"),
}
TRANSFORMERS = {
    "hf": "bert",
    "hf-layers": "bert?layers=1,-1&pooling=mean,cls",
    "hf-windows": "bert?long=windows&max_length=8&query_prompt=find",
    "hf-heads": "labse",
    "hf-static": "bert?static=true",
    "hf-taps": "gpt2",
}
KINDS = [
    *("words", "words-mapped", "words-fasttext", "static"),
    *WEIGHTINGS,
    *TRANSFORMERS,
    *TRANSFORMS,
    *("calibrated", "queries", "precomputed", "saved"),
]
SENT = ["hf-heads", "words-mapped", "static", "gem", "flow", "queries", "saved"]
AUGMENTATIONS = {
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
}


DIM, VOCABULARY = 256, [*WORDS, *(f"w{i}" for i in range(600))]
ROWS = np.random.default_rng(0).normal(size=(40, DIM))
CORPUS = [" ".join(words) for words in np.random.default_rng(1).choice(VOCABULARY, (400, 8))]


def save_words(path):
    rows = np.random.default_rng(2).normal(size=(len(VOCABULARY), DIM))
    lines = (f"{word} {' '.join(f'{x:.4f}' for x in row)}\n" for word, row in zip(VOCABULARY, rows, strict=True))
    path.write_text("".join(lines))
    return path


def save_static(folder):
    numbers = {"[UNK]": 0} | {word: number for number, word in enumerate(VOCABULARY, 1)}
    tokenizer = Tokenizer(WordLevel(numbers, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    rows = np.random.default_rng(3).normal(size=(len(numbers), DIM)).astype(np.float32)
    save_file({"embeddings": rows}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"normalize": True}))
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory, tiny_model):
    """Make a model of a kind; every call makes one that has computed nothing yet."""
    folder = tmp_path_factory.mktemp("sources")
    static = f"static:{save_static(folder)}"
    words = save_words(folder / "words.txt")
    convert_word_vectors([words], folder / "words.safetensors")
    references = {
        "wordllama": "wordllama",
        "words": f"words:{words}",
        "words-mapped": f"words:{folder / 'words.safetensors'}",
        "words-fasttext": f"words:{FASTTEXT}",
        "static": static,
    }

    @cache
    def fitted(kind):
        if kind in WEIGHTINGS:
            return isosent.load(static, weighting=WEIGHTINGS[kind]).fitted(CORPUS, transform=None)
        bare = isosent.load(static)
        if kind in TRANSFORMS:
            return bare.fitted(CORPUS, transform=TRANSFORMS[kind])
        whitened = bare.fitted(CORPUS, transform=Whitening(32))
        match kind:
            case "calibrated":
                return whitened.with_calibration(Calibration.from_random_pairs(whitened.encode(CORPUS)))
            case "queries":
                return bare.fitted(CORPUS, transform=Whitening(32), queries=CORPUS[:60])
            case "precomputed":
                encoder = PrecomputedVectors(DIM, {"space": "elsewhere"})
                return SentenceEncoder(encoder).fitted_on_vectors(bare.encode(CORPUS), transform=Whitening(32))
        assert kind == "saved"
        whitened.save(folder / "saved")
        return isosent.load(folder / "saved")

    def made(kind):
        if kind in TRANSFORMERS:
            name, _, options = TRANSFORMERS[kind].partition("?")
            return isosent.load(f"hf:{tiny_model(name)}?{options}")
        return isosent.load(references[kind]) if kind in references else pickle.loads(fitted_content(kind))

    fitted_content = cache(lambda kind: pickle.dumps(fitted(kind)))
    return made


def vectors_of(model):
    """What a model gives: several texts, one alone, queries; of precomputed vectors, theirs."""
    if isinstance(model.encoder, PrecomputedVectors):
        return [model.transform(ROWS), model.transform(ROWS.astype(np.float32)), model.transform(ROWS[:1])]
    found = [model.encode([*TEXTS, ""]), model.encode(TEXTS[:1]), model.encode_query(TEXTS)]
    return found if model.calibration is None else [*found, model.similarity(TEXTS, TEXTS, calibrated=True)]


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", ["wordllama", *KINDS])
def test_copies_give_the_same_vectors(made, kind):
    used = made(kind)
    expected, fingerprint = vectors_of(used), used.fingerprint
    for model in (made(kind), used):
        for copied in AUGMENTATIONS.values():
            another = copied(model)
            assert_same(vectors_of(another), expected)
            assert another.fingerprint == fingerprint
            assert another.record.postprocessing.dim == used.record.postprocessing.dim
    assert_same(vectors_of(used), expected)


@pytest.fixture(scope="module")
def sent(made):
    """What one worker of joblib makes of the models: several would each import torch."""
    calls = [delayed(each)(made(kind)) for kind in SENT for each in (vectors_of, attrgetter("fingerprint"))]
    results = Parallel(n_jobs=2, max_nbytes=1000, batch_size=len(calls))(calls)
    return dict(zip(SENT, zip(results[::2], results[1::2], strict=True), strict=True))


@pytest.mark.parametrize("kind", SENT)
@pytest.mark.slow
def test_a_worker_of_joblib_gives_the_same_vectors(made, sent, kind):
    """It is a new process, which large arrays reach as memory maps, and which may use fewer threads."""
    model, (found, fingerprint) = made(kind), sent[kind]
    assert fingerprint == model.fingerprint
    assert_same(found, vectors_of(model))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in TRANSFORMERS])
def test_threads_of_matrix_products_do_not_matter(made, kind):
    """A worker of joblib has a share of them."""
    results = []
    for n_threads in (1, 3):
        with threadpool_limits(n_threads):
            model = made(kind)
            is_bare = isinstance(model.encoder, PrecomputedVectors)
            results.append(model.transform(ROWS.astype(np.float32)) if is_bare else model.encode(CORPUS))
    assert_same(results[1:], results[:1])


@pytest.mark.parametrize("n_rounds", [2, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["wordllama", *KINDS])
def test_threads_share_a_model(made, together, kind, n_rounds):
    """It has computed nothing when they begin: whatever it keeps, they write at once."""
    alone, shared = made(kind), made(kind)
    n_rounds = min(n_rounds, 10) if kind in TRANSFORMERS or kind.startswith("flow") else n_rounds
    groups = [[CORPUS[number], CORPUS[2 * number]] for number in range(48)]

    def vectors(model, turn):
        if isinstance(model.encoder, PrecomputedVectors):
            return model.transform(ROWS[turn % 40 :]).tobytes()
        return model.encode(groups[turn % 48]).tobytes() + model.encode_query(groups[turn % 7]).tobytes()

    expected = [vectors(alone, turn) for turn in range(16 + n_rounds)]
    results = together(lambda turn: vectors(shared, turn) == expected[turn], n_rounds)
    assert len(results) == 16 * n_rounds
    assert all(results)


@pytest.mark.parametrize("kind", ["hf", "hf-heads", "hf-static"])
def test_a_pickled_model_needs_its_folder_no_more(tiny_model, tmp_path, kind):
    name, _, options = TRANSFORMERS[kind].partition("?")
    shutil.copytree(tiny_model(name), tmp_path / "model")
    model = isosent.load(f"hf:{tmp_path / 'model'}?{options}")
    expected, content = vectors_of(model), pickle.dumps(model)
    del model
    shutil.rmtree(tmp_path / "model")
    assert_same(vectors_of(pickle.loads(content)), expected)


def test_a_saved_model_gives_what_it_gave_in_memory(made, tmp_path):
    for number, kind in enumerate(TRANSFORMS):
        model = made(kind)
        model.save(tmp_path / str(number))
        again = isosent.load(tmp_path / str(number))
        assert again.fingerprint == model.fingerprint
        assert_same(vectors_of(again), vectors_of(model))


def test_encoders_of_other_prompts_share_one_network_behind_a_pickle(made):
    model = made("hf-windows")
    encoder = pickle.loads(pickle.dumps(model.encoder.for_queries()))
    assert encoder.prompt == "find"
    assert encoder.network is encoder.for_documents().network
    np.testing.assert_array_equal(encoder.encode(TEXTS), model.encode_query(TEXTS))


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_estimators_are_copied(transform):
    rows = np.random.default_rng(0).normal(size=(500, DIM)).astype(np.float32)
    fitted = clone(transform).fit(rows)
    expected = fitted.transform(rows)
    for copied in AUGMENTATIONS.values():
        np.testing.assert_array_equal(copied(fitted).transform(rows), expected)
    np.testing.assert_array_equal(clone(fitted).fit(rows).transform(rows), expected)
