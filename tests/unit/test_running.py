import hashlib
import platform
from importlib.metadata import version

import numpy as np
import pytest

import isosent
from isosent.errors import InputError, InputTypeError
from isosent.evaluation import run as run_module
from isosent.evaluation.result import Items, Measurement
from isosent.evaluation.run import TARGET, checksums, environment, run_tasks
from isosent.evaluation.task import Task
from isosent.numeric.statistics import bootstrap_interval


class Scorer:
    """Scores nothing in earnest, and keeps what it was given."""

    def __init__(self, items=None):
        self.items = items or Items(np.arange(10.0))
        self.calls = []

    def __call__(self, encode, seed):
        self.calls.append((encode, seed))
        scores = {"accuracy": 0.5, "spearman": 0.4, "pearson": 0.3}
        return Measurement("accuracy" if self.items.gold is None else "spearman", scores, self.items, {"said": 1})

    @property
    def encode(self):
        return self.calls[-1][0]


def task_of(texts, targets=(), scorer=None, name="T", protocol=None, files=()):
    items = [(text,) for text in texts]
    return Task(name, "kind", {"text": texts}, targets, items, scorer or Scorer(), protocol or {}, files)


def search_of(queries, documents, scorer=None):
    texts = {"query": queries, "document": documents}
    items = [(text,) for text in (*queries, *documents)]
    return Task("T", "kind", texts, documents, items, scorer or Scorer(), {}, (), "document")


def run(model, *tasks, root=".", transform=None, fit_on=TARGET, n_resamples=20, **settings):
    return run_tasks(model, tasks, root, transforms=[transform], fit_on=fit_on, n_resamples=n_resamples, **settings)


@pytest.fixture
def corpus(texts, tmp_path):
    """A file of a hundred texts."""
    path = tmp_path / "corpus.txt"
    path.write_text("".join(f"{text}\n" for text in texts[100:200]), "utf-8")
    return path


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def test_files_are_named_by_their_place_in_the_folder(tmp_path):
    (tmp_path / "data" / "sts").mkdir(parents=True)
    (tmp_path / "data" / "sts" / "a.txt").write_bytes(b"one")
    (tmp_path / "elsewhere.txt").write_bytes(b"two")
    files = [tmp_path / "data" / "sts" / "a.txt", tmp_path / "elsewhere.txt"]
    expected = {"sts/a.txt": sha256(b"one"), "elsewhere.txt": sha256(b"two")}
    assert checksums(tmp_path / "data", files) == expected
    (tmp_path / "link").symlink_to(tmp_path / "data")
    assert checksums(tmp_path / "link", files) == expected


def test_one_file_is_named_by_its_name(tmp_path):
    (tmp_path / "pairs.tsv").write_bytes(b"one")
    assert checksums(tmp_path / "pairs.tsv", [tmp_path / "pairs.tsv"]) == {"pairs.tsv": sha256(b"one")}


def test_the_environment_names_versions_and_the_machine():
    found = environment()
    assert found["versions"]["python"] == platform.python_version()
    assert found["versions"]["numpy"] == version("numpy")
    assert found["versions"]["isosent"] == version("isosent")
    assert found["machine"] == platform.machine()
    assert found["n_cpus"] >= 1


def test_a_result_holds_what_the_task_said(wordllama, tmp_path, texts):
    (tmp_path / "a.txt").write_bytes(b"one")
    job = task_of(texts[:5], name="MR", protocol={"similarity": "cosine"}, files=[tmp_path / "a.txt"])
    result = run(wordllama, job, root=tmp_path)
    task = result.tasks["MR"]
    assert (task.kind, task.metric, task.score, task.details) == ("kind", "accuracy", 0.5, {"said": 1})
    assert task.protocol == {"similarity": "cosine"}
    assert task.data == {"a.txt": sha256(b"one")}
    assert (task.n_items, task.dim, task.choice) == (10, wordllama.dim, None)
    assert result.model["reference"] == "wordllama"
    assert result.environment == environment()
    assert 0 <= task.elapsed_s <= result.elapsed_s
    assert 0 < result.encode_s < result.elapsed_s


def test_a_text_of_several_tasks_is_encoded_once(wordllama, texts, progress):
    scorer = Scorer()
    first, second = (*texts[:6], texts[0]), texts[4:9]
    result = run(
        wordllama, task_of(first, scorer=scorer, name="1"), task_of(second, scorer=scorer, name="2"), progress=progress
    )
    assert progress.complete() == [9]
    assert result.n_texts == 9
    for (encode, _), each in zip(scorer.calls, (first, second), strict=True):
        assert np.array_equal(encode(each), wordllama.encode(each))


def test_texts_to_fit_on_are_encoded_where_something_is_fitted(wordllama, texts):
    task = task_of(texts[:4], texts[2:40])
    assert run(wordllama, task).n_texts == 4
    assert run(wordllama, task, transform=isosent.Whitening(8)).n_texts == 40


def test_a_text_is_encoded_in_each_of_its_roles(wordllama, texts, monkeypatch):
    class Queries:
        def encode(self, texts, *, progress=None):
            return np.ones((len(texts), wordllama.dim), dtype=np.float32)

    monkeypatch.setattr(type(wordllama.encoder), "for_queries", lambda self: Queries())
    scorer = Scorer()
    result = run(wordllama, search_of(texts[:3], texts[1:6], scorer))
    assert result.n_texts == 8
    assert (scorer.encode(texts[:3], "query") == 1).all()
    assert np.array_equal(scorer.encode(texts[1:6], "document"), wordllama.encode(texts[1:6]))


def test_search_is_fitted_on_its_documents(wordllama, texts):
    scorer = Scorer()
    run(wordllama, search_of(texts[:3], texts[3:60], scorer), transform=isosent.Whitening(8))
    fitted = wordllama.fitted(texts[3:60], transform=isosent.Whitening(8))
    assert scorer.encode(texts[:3], "query") == pytest.approx(fitted.encode(texts[:3]), abs=1e-6)


def test_each_task_is_fitted_on_its_own_target(wordllama, texts):
    scorer = Scorer()
    starts = (0, 50)
    tasks = [task_of(texts[:4], texts[start : start + 50], scorer, str(start)) for start in starts]
    result = run(wordllama, *tasks, transform=isosent.Whitening(8))
    for (encode, _), start in zip(scorer.calls, starts, strict=True):
        fitted = wordllama.fitted(texts[start : start + 50], transform=isosent.Whitening(8))
        assert encode(texts[:4]) == pytest.approx(fitted.encode(texts[:4]), abs=1e-6)
    assert result.fitting["transform"] == "whitening"
    assert result.fitting["parameters"]["n_components"] == 8
    assert (result.fitting["fit"], result.fitting["transductive"]) == (TARGET, True)
    assert result.model["fits"] == []
    assert {task.dim for task in result.tasks.values()} == {8}


def test_every_task_is_scored_by_one_fit_on_a_file(wordllama, texts, corpus):
    scorer = Scorer()
    tasks = [task_of(texts[start : start + 4], texts[:80], scorer, str(start)) for start in (0, 50)]
    result = run(wordllama, *tasks, transform=isosent.Whitening(8), fit_on=corpus)
    fitted = wordllama.fitted(texts[100:200], transform=isosent.Whitening(8))
    for (encode, _), start in zip(scorer.calls, (0, 50), strict=True):
        assert encode(texts[start : start + 4]) == pytest.approx(fitted.encode(texts[start : start + 4]), abs=1e-6)
    assert result.fitting["fit"].endswith("corpus.txt")
    assert not result.fitting["transductive"]
    assert set(result.fitting["overlap"]) == {"0", "50"}
    (fit,) = result.model["fits"]
    assert (fit["source"], fit["n_texts"]) == ("corpus.txt", 100)


def test_nothing_is_fitted_without_a_transform(wordllama, texts):
    result = run(wordllama, task_of(texts[:4], texts[:80]))
    assert result.fitting == {"transform": None, "parameters": {}, "fit": None, "transductive": False}


@pytest.mark.parametrize("on_file", [False, True])
def test_an_encoder_that_needs_a_corpus_is_fitted_on_the_same(texts, corpus, on_file):
    model = isosent.load("wordllama?weighting=sif")
    scorer = Scorer()
    tasks = [task_of(texts[:4], texts[start : start + 50], scorer, str(start)) for start in (0, 50)]
    result = run(model, *tasks, fit_on=corpus if on_file else TARGET)
    for (encode, _), task in zip(scorer.calls, tasks, strict=True):
        fitted = model.fitted(texts[100:200] if on_file else task.target_texts, transform=None)
        assert encode(texts[:4]) == pytest.approx(fitted.encode(texts[:4]), abs=1e-6)
    assert result.fitting["transductive"] is not on_file


@pytest.mark.parametrize("reference", ["wordllama", "wordllama?weighting=sif"])
@pytest.mark.parametrize("on_file", [False, True])
def test_several_transforms_score_as_each_does_alone(write_stsb, tmp_path, corpus, reference, on_file, monkeypatch):
    model, folder = isosent.load(reference), write_stsb(tmp_path)
    fit_on = corpus if on_file else TARGET
    transforms = [None, "standardize", isosent.Whitening(8), "auto"]
    alone = [
        isosent.evaluate(model, folder, transform=each, fit_on=fit_on if each else TARGET) for each in transforms[1:]
    ]
    counted = []
    original = run_module.TextVectors.__init__
    monkeypatch.setattr(
        run_module.TextVectors, "__init__", lambda self, *args: (counted.append(1), original(self, *args))[1]
    )
    together = isosent.evaluate(model, folder, transform=transforms, fit_on=fit_on)
    assert len(counted) == 1
    assert together.fitting["transform"] is None
    for one, other in zip(together.variants, alone, strict=True):
        assert one.tasks["STSB"].scores == other.tasks["STSB"].scores
        assert one.fitting == other.fitting
        assert [fit["transform"] for fit in one.model["fits"]] == [fit["transform"] for fit in other.model["fits"]]


def test_texts_without_a_vector_are_counted_as_often_as_they_occur(wordllama, texts):
    assert run(wordllama, task_of(["", texts[0], ""])).tasks["T"].n_zero_rows == 2


def test_the_seed_reaches_the_scorer_and_the_intervals(wordllama, texts):
    items = Items(np.random.default_rng(0).random(30))
    intervals = []
    for seed in (0, 5):
        scorer = Scorer(items)
        result = run(wordllama, task_of(texts[:3], scorer=scorer), seed=seed, n_resamples=50)
        assert [seed for _, seed in scorer.calls] == [result.seed] == [seed]
        assert result.n_resamples == 50
        intervals.append(result.tasks["T"].interval)
        assert intervals[-1] == bootstrap_interval("mean", items.values, n_resamples=50, seed=seed)
    assert intervals[0] != intervals[1]


def test_human_scores_give_intervals_of_both_correlations(wordllama, texts):
    random = np.random.default_rng(0)
    items = Items(random.random(30), random.random(30))
    task = run(wordllama, task_of(texts[:3], scorer=Scorer(items))).tasks["T"]
    for metric in ("spearman", "pearson"):
        assert task.intervals[metric] == bootstrap_interval(metric, items.values, items.gold, n_resamples=20)
    assert list(task.intervals) == ["spearman", "pearson"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"seed": -1}, "seed must be a whole number >= 0; got -1"),
        ({"seed": 1.5}, "seed must be a whole number >= 0; got 1.5"),
        ({"n_resamples": 0}, "n_resamples must be a whole number >= 1; got 0"),
        ({"n_resamples": True}, "n_resamples must be a whole number >= 1; got True"),
        ({"transform": []}, "empty list"),
        ({"transform": "whitning"}, "whitning"),
        ({"fit_on": "nowhere.txt"}, "nothing to fit on nowhere.txt"),
        ({"fit_on": "nowhere.txt", "transform": "whitening"}, "nowhere.txt: no such file"),
        ({"columns": "a,b,c"}, "columns"),
        ({"tasks": []}, "no tasks are named"),
        ({"tasks": [1]}, "tasks must be names; got [1]"),
        ({"tasks": "STS-C"}, "no task 'STS-C'. Did you mean"),
        ({"tasks": "transfer:STSB"}, "Did you mean STSB-supervised"),
        ({"sickr": "dev"}, "sickr must be one of full, test; got 'dev'"),
    ],
)
def test_settings_without_meaning_are_refused(wordllama, write_stsb, tmp_path, settings, words):
    with pytest.raises((InputError, InputTypeError)) as caught:
        isosent.evaluate(wordllama, write_stsb(tmp_path), **settings)
    assert words in str(caught.value)


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(InputTypeError, match=r"model must be a SentenceEncoder; got str"):
        isosent.evaluate("wordllama", tmp_path)


def test_two_tasks_of_one_name_are_refused(wordllama, texts):
    with pytest.raises(InputError, match="two tasks are called T"):
        run(wordllama, task_of(texts[:3]), task_of(texts[:3]))


@pytest.mark.parametrize("tasks", ["STS-B", "stsb", ["sts:STSB"], "STSB, sts", ["STSB", "STSB"]])
def test_a_set_has_several_names(wordllama, write_stsb, tmp_path, tasks):
    assert list(isosent.evaluate(wordllama, write_stsb(tmp_path), tasks, n_resamples=2).tasks) == ["STSB"]
