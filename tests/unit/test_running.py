import hashlib
import platform
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np
import pytest

import isosent
from isosent.errors import InputError, InputTypeError
from isosent.evaluation.result import Items, Measured
from isosent.evaluation.run import TARGET, EvaluationSettings, Job, checksums, environment, run_jobs
from isosent.evaluation.task import Task
from isosent.numeric.statistics import bootstrap_interval

FEW = EvaluationSettings(n_resamples=20)


@dataclass(frozen=True, slots=True, eq=False)
class Plain(Task):
    texts: tuple[str, ...]
    target_texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Search(Task):
    queries: tuple[str, ...]
    documents: tuple[str, ...]

    @property
    def texts(self):
        return self.queries + self.documents

    @property
    def target_texts(self):
        return self.documents

    @property
    def by_role(self):
        return {"query": self.queries, "document": self.documents}

    @property
    def target_role(self):
        return "document"


class Scorer:
    """Scores nothing in earnest, and keeps what it was given."""

    def __init__(self, items=None):
        self.items = items or Items(np.arange(10.0))
        self.seen = []

    def __call__(self, done, seed):
        self.seen.append((done, seed))
        scores = {"accuracy": 0.5, "spearman": 0.4, "pearson": 0.3}
        return Measured("accuracy" if self.items.gold is None else "spearman", scores, self.items, {"said": 1})

    @property
    def done(self):
        return self.seen[-1][0]


def job_of(task, scorer, name="T", protocol=None, files=()):
    return Job(name, "kind", task, scorer, protocol or {}, files)


def run(model, *jobs, root=".", transform=None, fit=TARGET, run=FEW):
    return run_jobs("here", model, jobs, root, transform=transform, fit=fit, run=run)


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


def test_a_result_holds_what_the_job_said(wordllama, tmp_path, texts):
    (tmp_path / "a.txt").write_bytes(b"one")
    scorer = Scorer()
    job = job_of(Plain(tuple(texts[:5])), scorer, "MR", {"similarity": "cosine"}, [tmp_path / "a.txt"])
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


def test_a_text_of_several_tasks_is_encoded_once(wordllama, texts):
    totals, advanced = [], []

    def progress(total):
        totals.append(total)
        return advanced.append

    scorer = Scorer()
    first, second = Plain((*texts[:6], texts[0])), Plain(tuple(texts[4:9]))
    jobs = job_of(first, scorer, "one"), job_of(second, scorer, "two")
    result = run(wordllama, *jobs, run=EvaluationSettings(n_resamples=20, progress=progress))
    assert totals == [9] == [sum(advanced)]
    assert result.n_texts == 9
    for (done, _), task in zip(scorer.seen, (first, second), strict=True):
        assert np.array_equal(done.encode(task.texts), wordllama.encode(task.texts))


def test_texts_to_fit_on_are_encoded_where_something_is_fitted(wordllama, texts):
    task = Plain(tuple(texts[:4]), tuple(texts[2:40]))
    assert run(wordllama, job_of(task, Scorer())).n_texts == 4
    assert run(wordllama, job_of(task, Scorer()), transform=isosent.Whitening(8)).n_texts == 40


def test_a_text_is_encoded_in_each_of_its_roles(wordllama, texts, monkeypatch):
    class Queries:
        def encode(self, texts, *, progress=None):
            return np.ones((len(texts), wordllama.dim), dtype=np.float32)

    monkeypatch.setattr(type(wordllama.encoder), "for_queries", lambda self: Queries())
    scorer = Scorer()
    task = Search(tuple(texts[:3]), tuple(texts[1:6]))
    run(wordllama, job_of(task, scorer))
    assert scorer.done.vectors.n_texts == 8
    assert (scorer.done.encode(task.queries, "query") == 1).all()
    assert np.array_equal(scorer.done.encode(task.documents, "document"), wordllama.encode(task.documents))


def test_search_is_fitted_on_its_documents(wordllama, texts):
    scorer = Scorer()
    task = Search(tuple(texts[:3]), tuple(texts[3:60]))
    run(wordllama, job_of(task, scorer), transform=isosent.Whitening(8))
    assert scorer.done.fitted.fits[-1].n_texts == 57
    fitted = wordllama.fitted(task.documents, transform=isosent.Whitening(8))
    assert scorer.done.encode(task.queries, "query") == pytest.approx(fitted.encode(task.queries), abs=1e-6)


def test_each_task_is_fitted_on_its_own_target(wordllama, texts):
    scorer = Scorer()
    tasks = [Plain(tuple(texts[:4]), tuple(texts[start : start + 50])) for start in (0, 50)]
    result = run(
        wordllama, *(job_of(task, scorer, str(row)) for row, task in enumerate(tasks)), transform=isosent.Whitening(8)
    )
    for (done, _), task in zip(scorer.seen, tasks, strict=True):
        fitted = wordllama.fitted(task.target_texts, transform=isosent.Whitening(8))
        assert done.encode(task.texts) == pytest.approx(fitted.encode(task.texts), abs=1e-6)
    assert result.fitting["transform"] == "whitening"
    assert result.fitting["parameters"]["n_components"] == 8
    assert (result.fitting["fit"], result.fitting["transductive"]) == (TARGET, True)
    assert result.model["fits"] == []
    assert {task.dim for task in result.tasks.values()} == {8}


def test_every_task_is_scored_by_one_fit_on_a_file(wordllama, texts, tmp_path):
    corpus = texts[100:200]
    (tmp_path / "corpus.txt").write_text("".join(f"{text}\n" for text in corpus), "utf-8")
    scorer = Scorer()
    tasks = [Plain(tuple(texts[start : start + 4]), tuple(texts[:80])) for start in (0, 50)]
    result = run(
        wordllama,
        *(job_of(task, scorer, str(row)) for row, task in enumerate(tasks)),
        transform=isosent.Whitening(8),
        fit=tmp_path / "corpus.txt",
    )
    fitted = wordllama.fitted(corpus, transform=isosent.Whitening(8))
    for (done, _), task in zip(scorer.seen, tasks, strict=True):
        assert done.encode(task.texts) == pytest.approx(fitted.encode(task.texts), abs=1e-6)
    assert result.fitting["fit"].endswith("corpus.txt")
    assert not result.fitting["transductive"]
    (fit,) = result.model["fits"]
    assert (fit["source"], fit["n_texts"]) == ("corpus.txt", 100)


def test_nothing_is_fitted_without_a_transform(wordllama, texts):
    result = run(wordllama, job_of(Plain(tuple(texts[:4]), tuple(texts[:80])), Scorer()))
    expected = {"transform": None, "parameters": {}, "fit": None, "transductive": False}
    assert expected.items() <= result.fitting.items()


@pytest.mark.parametrize("on_file", [False, True])
def test_an_encoder_that_needs_a_corpus_is_fitted_on_the_same(texts, tmp_path, on_file):
    (tmp_path / "corpus.txt").write_text("".join(f"{text}\n" for text in texts[100:200]), "utf-8")
    model = isosent.load("wordllama?weighting=sif")
    scorer = Scorer()
    tasks = [Plain(tuple(texts[:4]), tuple(texts[start : start + 50])) for start in (0, 50)]
    jobs = [job_of(task, scorer, str(row)) for row, task in enumerate(tasks)]
    result = run(model, *jobs, fit=tmp_path / "corpus.txt" if on_file else TARGET)
    for (done, _), task in zip(scorer.seen, tasks, strict=True):
        fitted = model.fitted(texts[100:200] if on_file else task.target_texts, transform=None)
        assert done.encode(task.texts) == pytest.approx(fitted.encode(task.texts), abs=1e-6)
    assert result.fitting["transductive"] is not on_file


def test_texts_without_a_vector_are_counted_as_often_as_they_occur(wordllama, texts):
    result = run(wordllama, job_of(Plain(("", texts[0], "")), Scorer()))
    assert result.tasks["T"].n_zero_rows == 2


def test_the_seed_reaches_the_scorer_and_the_intervals(wordllama, texts):
    items = Items(np.random.default_rng(0).random(30))
    intervals = []
    for seed in (0, 5):
        scorer = Scorer(items)
        result = run(wordllama, job_of(Plain(tuple(texts[:3])), scorer), run=EvaluationSettings(seed, 50))
        assert [seed for _, seed in scorer.seen] == [result.seed] == [seed]
        assert result.n_resamples == 50
        intervals.append(result.tasks["T"].interval)
        assert intervals[-1] == bootstrap_interval("mean", items.values, n_resamples=50, seed=seed)
    assert intervals[0] != intervals[1]


def test_human_scores_give_intervals_of_both_correlations(wordllama, texts):
    random = np.random.default_rng(0)
    items = Items(random.random(30), random.random(30))
    task = run(wordllama, job_of(Plain(tuple(texts[:3])), Scorer(items))).tasks["T"]
    for metric in ("spearman", "pearson"):
        assert task.intervals[metric] == bootstrap_interval(metric, items.values, items.gold, n_resamples=20)
    assert list(task.intervals) == ["spearman", "pearson"]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"seed": -1}, "Run: seed must be a whole number >= 0; got -1"),
        ({"seed": 1.5}, "Run: seed must be a whole number >= 0; got 1.5"),
        ({"n_resamples": 0}, "Run: n_resamples must be a whole number >= 1; got 0"),
        ({"n_resamples": True}, "Run: n_resamples must be a whole number >= 1; got True"),
    ],
)
def test_what_is_no_way_to_run_is_refused(how, words):
    with pytest.raises(InputError) as caught:
        EvaluationSettings(**how)
    assert words in str(caught.value)


def test_what_is_no_model_is_refused_by_the_caller_s_name(texts):
    with pytest.raises(InputTypeError, match=r"^here: model must be what isosent\.load returns; got str\."):
        run("wordllama", job_of(Plain(tuple(texts[:3])), Scorer()))


def test_what_cannot_be_fitted_on_is_refused(wordllama, texts, tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.txt must exist"):
        run(
            wordllama,
            job_of(Plain(tuple(texts[:3])), Scorer()),
            transform=isosent.Whitening(),
            fit=tmp_path / "nowhere.txt",
        )


def test_two_tasks_of_one_name_are_refused(wordllama, texts):
    one, other = (job_of(Search(tuple(texts[:3]), tuple(texts[1:6])), Scorer()) for _ in range(2))
    with pytest.raises(InputError, match="tasks must have names of their own"):
        run_jobs("evaluate", wordllama, [one, other], ".", transform=None, fit="target", run=None)
