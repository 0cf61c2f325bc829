import json
import warnings
from importlib.metadata import version

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

import isosent
from isosent import Whitening, evaluate
from isosent.errors import EvaluationWarning, FileFormatError, InputError, InputFileError, InputTypeError
from isosent.evaluation.sts import TASKS, YEAR_SUBSETS, read_scored_pairs, read_sts

SICK_HEADER = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"


def write_subset(folder, name, lines, scores, prefix="STS"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{prefix}.input.{name}.txt").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    (folder / f"{prefix}.gs.{name}.txt").write_text("".join(f"{score}\n" for score in scores), "utf-8")


@pytest.fixture
def write_sick(sts_lines):
    def write_sick(folder, parts=("train", "trial", "test_annotated")):
        folder.mkdir(parents=True, exist_ok=True)
        for number, part in enumerate(parts):
            sentences, scores = sts_lines(5 + number, 30 * number)
            rows = [
                f"{i}\t{line}\t{score}\tNEUTRAL\n"
                for i, (line, score) in enumerate(zip(sentences, scores, strict=True))
            ]
            (folder / f"SICK_{part}.txt").write_text(SICK_HEADER + "".join(rows), "utf-8")
        return folder

    return write_sick


@pytest.fixture
def all_tasks(tmp_path, write_year, write_stsb, write_sick):
    root = tmp_path / "data"
    for task in YEAR_SUBSETS:
        write_year(task, root / f"sts{task[3:]}-test", prefix="STS2016" if task == "STS16" else "STS")
    write_stsb(root / "stsbenchmark")
    write_sick(root / "sick")
    return root


def task_names(root, **settings):
    return [task.name for task in read_sts(root, **settings)]


def test_all_seven_tasks_are_found_below_a_folder_in_their_order(all_tasks):
    assert task_names(all_tasks) == list(TASKS)


def test_the_subsets_of_every_year_are_read_in_their_order(all_tasks):
    for task in read_sts(all_tasks)[:5]:
        assert tuple(subset.name for subset in task.subsets) == YEAR_SUBSETS[task.name]
        assert task.missing_subsets == ()


def test_only_the_tasks_asked_for_are_read(all_tasks):
    assert task_names(all_tasks, tasks=["STSB", "STS13"]) == ["STS13", "STSB"]


def test_case_and_dashes_of_a_task_do_not_matter(all_tasks):
    assert task_names(all_tasks, tasks=["sts-b", "sick-r", " Sts12 "]) == ["STS12", "STSB", "SICKR"]


def test_tasks_that_are_not_asked_for_are_not_read(all_tasks):
    (all_tasks / "sick" / "SICK_train.txt").write_text("damaged")
    assert task_names(all_tasks, tasks=["STSB"]) == ["STSB"]


def test_a_year_is_known_by_its_subsets_whatever_its_folder_is_called(tmp_path, write_year):
    for number, task in enumerate(YEAR_SUBSETS):
        write_year(task, tmp_path / f"folder{number}", prefix="STS2016" if task == "STS16" else "STS")
    assert task_names(tmp_path) == list(YEAR_SUBSETS)


@pytest.mark.parametrize(
    ("folder", "subsets", "task"),
    [
        ("STS2012-test", ["MSRpar", "MSRvid"], "STS12"),
        ("STS13-en-test", ["OnWN", "headlines"], "STS13"),
        ("sts2014", ["headlines", "images"], "STS14"),
        ("STS15-en-test", ["headlines", "images"], "STS15"),
    ],
)
def test_a_year_whose_subsets_occur_in_several_is_known_by_its_folder(tmp_path, write_year, folder, subsets, task):
    write_year(task, tmp_path / folder, subsets=subsets)
    assert task_names(tmp_path) == [task]


def test_the_name_of_the_searched_folder_itself_counts_even_as_a_dot(tmp_path, write_year, monkeypatch):
    monkeypatch.chdir(write_year("STS13", tmp_path / "STS13-en-test", subsets=["OnWN", "headlines"]))
    assert task_names(".") == ["STS13"]


def test_the_layout_of_senteval_is_read(tmp_path, write_year, write_stsb, write_sick):
    for task in YEAR_SUBSETS:  # SentEval's download renames the files of 2016 to STS.input.* and STS.gs.*
        write_year(task, tmp_path / "downstream" / "STS" / f"{task}-en-test")
    write_stsb(tmp_path / "downstream" / "STS" / "STSBenchmark")
    write_sick(tmp_path / "downstream" / "SICK")
    tasks = read_sts(tmp_path / "downstream")
    assert [task.name for task in tasks] == list(TASKS)
    assert [len(task.subsets) for task in tasks] == [5, 3, 6, 5, 5, 1, 1]


def test_the_two_further_columns_of_2016_are_left_out(tmp_path, write_year):
    write_year("STS16", tmp_path, prefix="STS2016", more="\tsource one\tsource two")
    (task,) = read_sts(tmp_path)
    assert not any("source" in text for text in task.target_texts)
    assert sum(len(subset.scores) for subset in task.subsets) == 40


@pytest.mark.parametrize("name", ["train", "STS2012-train", "STS12-en-train", "STS2012-trial"])
def test_train_folders_are_skipped(tmp_path, write_year, name):
    write_year("STS12", tmp_path / name, subsets=["MSRpar", "MSRvid", "SMTeuroparl"])
    write_year("STS12", tmp_path / "test")
    (task,) = read_sts(tmp_path)
    assert len(task.subsets) == 5


def test_a_train_folder_alone_is_no_task(tmp_path, write_year):
    write_year("STS12", tmp_path / "STS12-train", subsets=["MSRpar", "MSRvid", "SMTeuroparl"])
    with pytest.raises(InputError, match=r"holds no STS files\. Known names: STS\.input\.NAME\.txt"):
        read_sts(tmp_path)


def test_pairs_without_a_score_are_dropped(tmp_path, write_year):
    write_year("STS15", tmp_path)
    write_subset(tmp_path, "belief", ["a\tb", "c\td", "e\tf", "g\th"], ["1", "", "3", "  "])
    belief = read_sts(tmp_path)[0].subsets[2]
    assert (belief.first, belief.second, belief.scores.tolist()) == (("a", "e"), ("b", "f"), [1, 3])


def test_sentences_are_split_at_tabs_without_quoting(tmp_path, write_year):
    write_year("STS13", tmp_path)
    write_subset(tmp_path, "FNWN", ['"a\tb" c', "d\u2028e\tf\r"], ["1", "2"])
    fnwn = read_sts(tmp_path)[0].subsets[0]
    assert (fnwn.first, fnwn.second) == (('"a', "d\u2028e"), ('b" c', "f"))


@pytest.mark.parametrize("more", ["", "\tsource one\tsource two"], ids=["7 columns", "9 columns"])
def test_the_benchmark_is_its_test_part(tmp_path, write_stsb, sts_lines, more):
    (task,) = read_sts(write_stsb(tmp_path, more=more))
    sentences, scores = sts_lines(12, 200)
    (subset,) = task.subsets
    assert [f"{first}\t{second}" for first, second in zip(subset.first, subset.second, strict=True)] == sentences
    assert subset.scores.tolist() == [float(score) for score in scores]


def test_the_benchmarks_target_texts_take_in_train_and_dev(tmp_path, write_stsb):
    (task,) = read_sts(write_stsb(tmp_path))
    assert len(task.target_texts) == 3 * 2 * 12


def test_the_benchmark_can_be_its_test_part_alone(tmp_path, write_stsb):
    write_stsb(tmp_path)
    (tmp_path / "sts-train.csv").unlink()
    (tmp_path / "sts-dev.csv").unlink()
    assert len(read_sts(tmp_path)[0].target_texts) == 2 * 12


def test_sick_full_is_train_trial_and_test(tmp_path, write_sick):
    (task,) = read_sts(write_sick(tmp_path), sickr="full")
    assert [len(subset.scores) for subset in task.subsets] == [5 + 6 + 7]


def test_sick_test_is_the_test_part_and_its_target_texts_are_all(tmp_path, write_sick):
    (task,) = read_sts(write_sick(tmp_path), sickr="test")
    assert [len(subset.scores) for subset in task.subsets] == [7]
    assert len(task.target_texts) == 2 * (5 + 6 + 7)


def test_sick_test_needs_the_test_part_only(tmp_path, write_sick):
    (task,) = read_sts(write_sick(tmp_path, ["test_annotated"]), sickr="test")
    assert len(task.target_texts) == 2 * 5


def test_sick_full_without_its_train_part_is_refused(tmp_path, write_sick):
    with pytest.raises(InputFileError, match=r"SICK_train\.txt: no such file"):
        read_sts(write_sick(tmp_path, ["trial", "test_annotated"]))


def test_another_part_of_sick_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"sickr must be one of full, test; got 'dev'"):
        read_sts(tmp_path, sickr="dev")


@pytest.mark.parametrize("content", ["pair_ID\tsentence_A\tsentence_B\n", "\n"])
def test_sick_without_its_columns_is_refused(tmp_path, write_sick, content):
    (write_sick(tmp_path) / "SICK_trial.txt").write_text(content, "utf-8")
    with pytest.raises(FileFormatError, match=r"SICK_trial\.txt (has no column|holds no rows)"):
        read_sts(tmp_path)


def test_a_short_line_of_sick_names_its_line(tmp_path, write_sick):
    path = write_sick(tmp_path) / "SICK_train.txt"
    path.write_text(path.read_text() + "7\tone sentence\n")
    with pytest.raises(FileFormatError, match=r"SICK_train\.txt, line 7: expected 5 fields, .*; found 2"):
        read_sts(tmp_path)


def test_unequal_numbers_of_lines_are_refused(tmp_path, write_year):
    write_year("STS13", tmp_path)
    write_subset(tmp_path, "FNWN", ["a\tb", "c\td", "e\tf"], ["1", "2"])
    words = r"STS\.input\.FNWN\.txt has 3 lines and STS\.gs\.FNWN\.txt has 2"
    with pytest.raises(FileFormatError, match=words):
        read_sts(tmp_path)


def test_missing_scores_are_refused(tmp_path, write_year):
    (write_year("STS13", tmp_path) / "STS.gs.FNWN.txt").unlink()
    with pytest.raises(InputFileError, match=r"STS\.gs\.FNWN\.txt: no such file"):
        read_sts(tmp_path)


def test_equal_scores_are_refused(tmp_path, write_year):
    write_year("STS13", tmp_path)
    write_subset(tmp_path, "FNWN", ["a\tb", "c\td"], ["2", "2.0"])
    words = r"the scores of the 2 pairs of FNWN are all 2, so that no correlation is defined\."
    with pytest.raises(FileFormatError, match=words):
        read_sts(tmp_path)


def test_a_subset_without_any_score_is_refused(tmp_path, write_year):
    write_year("STS13", tmp_path)
    write_subset(tmp_path, "FNWN", ["a\tb", "c\td"], ["", ""])
    with pytest.raises(FileFormatError, match=r"the scores of the 0 pairs of FNWN are missing"):
        read_sts(tmp_path)


@pytest.mark.parametrize("score", ["high", "1,5", "nan", "inf"])
def test_a_malformed_score_names_its_line(tmp_path, write_year, score):
    write_year("STS13", tmp_path)
    write_subset(tmp_path, "FNWN", ["a\tb", "c\td"], ["1", score])
    with pytest.raises(FileFormatError, match=rf"STS\.gs\.FNWN\.txt, line 2: expected a score, found '{score}'"):
        read_sts(tmp_path)


def test_a_malformed_score_of_the_benchmark_names_its_line(tmp_path, write_stsb):
    path = write_stsb(tmp_path) / "sts-dev.csv"
    path.write_text(path.read_text() + "genre\tfile\tyear\t7\thigh\ta\tb\n")
    with pytest.raises(FileFormatError, match=r"sts-dev\.csv, line 13: score is 'high', not a number"):
        read_sts(tmp_path)


def test_a_short_line_names_its_line(tmp_path, write_year):
    write_year("STS13", tmp_path)
    write_subset(tmp_path, "FNWN", ["a\tb", "one sentence only"], ["1", "2"])
    with pytest.raises(FileFormatError, match=r"STS\.input\.FNWN\.txt, line 2: expected at least 2 fields"):
        read_sts(tmp_path)


def test_a_short_line_of_the_benchmark_names_its_line(tmp_path, write_stsb):
    path = write_stsb(tmp_path) / "sts-test.csv"
    path.write_text(path.read_text() + "a\tb\n")
    with pytest.raises(FileFormatError, match=r"sts-test\.csv, line 13: expected 7 fields, .*; found 2"):
        read_sts(tmp_path)


def test_undecodable_bytes_name_their_line(tmp_path, write_year):
    (write_year("STS13", tmp_path) / "STS.input.FNWN.txt").write_bytes(b"a\tb\ncaf\xe9\td\n")
    with pytest.raises(FileFormatError, match=r"STS\.input\.FNWN\.txt, line 2 is not UTF-8: byte 0xe9"):
        read_sts(tmp_path)


def test_a_folder_without_any_known_file_lists_the_known_names(tmp_path):
    (tmp_path / "readme.txt").write_text("nothing")
    with pytest.raises(InputError, match=r"holds no STS files\. Known names: .*sts-test\.csv.*SICK_tra"):
        read_sts(tmp_path)


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(InputFileError, match=r"^/.*nowhere: no such folder\.$"):
        read_sts(tmp_path / "nowhere")


def test_a_task_that_is_not_there_lists_those_that_are(tmp_path, write_year, write_stsb):
    write_year("STS13", tmp_path / "a")
    write_stsb(tmp_path / "b")
    with pytest.raises(InputError, match=r"holds no STS12, SICKR; it holds STS13, STSB\."):
        read_sts(tmp_path, tasks=["STS12", "STS13", "SICKR"])


def test_an_unknown_task_lists_the_known_ones(tmp_path):
    with pytest.raises(InputError, match=r"there is no task 'STS17'.* There are STS12, .*, STSB, SICKR"):
        read_sts(tmp_path, tasks=["STS17"])


def test_no_tasks_at_all_are_refused(all_tasks):
    with pytest.raises(InputError, match=r"no tasks are named\. Leave them out for all\."):
        read_sts(all_tasks, tasks=[])


@pytest.mark.parametrize("written", ["STSB", "STS12,STSB", ""])
def test_tasks_given_as_one_string_are_refused(all_tasks, written):
    words = rf"tasks must be a sequence of names; got one string\. Pass \['{written}'\]\."
    with pytest.raises(InputTypeError, match=words):
        read_sts(all_tasks, tasks=written)


def test_the_same_task_in_two_folders_is_refused(tmp_path, write_stsb):
    write_stsb(tmp_path / "a")
    write_stsb(tmp_path / "b")
    with pytest.raises(InputError, match=r"STSB is in several folders: .*a, .*b\. Name one of them\."):
        read_sts(tmp_path)


def test_a_missing_subset_is_a_deviation(tmp_path, write_year):
    write_year("STS14", tmp_path, subsets=["deft-forum", "headlines"])
    (task,) = read_sts(tmp_path)
    assert "0 items in tweet-news instead of 750" in task.deviations
    assert task.missing_subsets == ("OnWN", "deft-news", "images", "tweet-news")


def test_a_whole_year_does_not_warn(tmp_path, write_year):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_sts(write_year("STS14", tmp_path))


def cosines(model, first, second):
    a, b = (model.encode(texts).astype(np.float64) for texts in (first, second))
    return (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def test_aggregations_are_those_of_scipy(wordllama, tmp_path, write_year):
    folder = write_year("STS14", tmp_path)
    result = evaluate(wordllama, folder).tasks["STS14"]
    (task,) = read_sts(folder)
    scores = [subset.scores for subset in task.subsets]
    ours = [cosines(wordllama, subset.first, subset.second) for subset in task.subsets]
    for metric, correlate in (("spearman", spearmanr), ("pearson", pearsonr)):
        each = [correlate(a, b)[0] for a, b in zip(ours, scores, strict=True)]
        expected = {
            "all": correlate(np.concatenate(ours), np.concatenate(scores))[0],
            "mean": np.mean(each),
            "wmean": np.average(each, weights=list(map(len, scores))),
        }
        measured = {how: result.scores[metric if how == "all" else f"{metric}_{how}"] for how in expected}
        assert measured == pytest.approx(expected, abs=1e-9)
        subsets = [subset[metric] for subset in result.details["subsets"].values()]
        assert subsets == pytest.approx(each, abs=1e-9)
    assert [subset["n_pairs"] for subset in result.details["subsets"].values()] == [6, 7, 8, 9, 10, 11]
    assert result.n_items == 51


def test_the_average_is_the_unweighted_mean_over_tasks(wordllama, all_tasks):
    result = evaluate(wordllama, all_tasks)
    assert len(result.tasks) == 7
    for name in ("spearman", "spearman_wmean", "pearson_mean"):
        assert result.average(name) == pytest.approx(np.mean([task.scores[name] for task in result.tasks.values()]))


def test_the_result_as_json_has_its_keys(wordllama, tmp_path, write_stsb):
    result = json.loads(json.dumps(evaluate(wordllama, write_stsb(tmp_path)).to_json(), allow_nan=False))
    assert set(result["model"]) == set(wordllama.record.facts())
    assert result["fitting"] == {"transform": None, "parameters": {}, "fit": None, "transductive": False}
    assert result["environment"]["versions"]["isosent"] == version("isosent")
    task = result["tasks"]["STSB"]
    assert (task["kind"], task["metric"], task["n_items"]) == ("sts", "spearman", 12)
    assert task["protocol"] == {"similarity": "cosine", "aggregation": "all"}
    assert list(task["data"]) == ["sts-train.csv", "sts-dev.csv", "sts-test.csv"]
    assert set(task["details"]["subsets"]["stsb"]) == {"n_pairs", "spearman", "pearson"}
    assert len(result["items"]["STSB"]["values"]) == len(result["items"]["STSB"]["gold"]) == 12


def test_sentences_without_a_vector_are_counted_and_their_cosine_is_0(tmp_path, write_year):
    (tmp_path / "glove.txt").write_text("man 1 2\ndog 2 1\ncat 3 -1\n")
    model = isosent.load(f"words:{tmp_path / 'glove.txt'}")
    folder = write_year("STS13", tmp_path / "sts")
    for name in YEAR_SUBSETS["STS13"]:
        write_subset(folder, name, ["man\tdog", "zebra\tcat", "man\tcat", "zebra\tyak"], ["4", "1", "2", "3"])
    result = evaluate(model, folder).tasks["STS13"]
    assert result.n_zero_rows == 9
    expected = spearmanr([0.8, 0, 1 / np.sqrt(50), 0], [4, 1, 2, 3])[0]
    assert result.details["subsets"]["FNWN"]["spearman"] == pytest.approx(expected)


def test_an_undefined_correlation_is_none_and_warned_of(tmp_path, write_year):
    (tmp_path / "glove.txt").write_text("man 1 2\ndog 2 1\ncat 3 -1\n")
    model = isosent.load(f"words:{tmp_path / 'glove.txt'}")
    folder = write_year("STS13", tmp_path / "sts")
    for name in YEAR_SUBSETS["STS13"]:
        write_subset(folder, name, ["man\tdog", "man\tcat", "dog\tcat"], ["4", "1", "2"])
    write_subset(folder, "OnWN", ["zebra\tdog", "man\tyak"], ["4", "1"])
    with pytest.warns(
        EvaluationWarning, match=r"STS13: every cosine of OnWN is the same; its correlation is undefined"
    ):
        result = evaluate(model, folder)
    task = json.loads(json.dumps(result.to_json(), allow_nan=False))["tasks"]["STS13"]
    subsets = task["details"]["subsets"]
    assert (subsets["OnWN"]["spearman"], subsets["OnWN"]["pearson"]) == (None, None)
    assert (task["scores"]["spearman_mean"], task["scores"]["spearman_wmean"]) == (None, None)
    assert task["scores"]["spearman"] is not None
    assert subsets["FNWN"]["spearman"] is not None


def test_missing_subsets_are_in_the_protocol(wordllama, tmp_path, write_year):
    write_year("STS13", tmp_path, subsets=["FNWN", "OnWN"])
    with pytest.warns(EvaluationWarning, match="STS13: .* 0 items in headlines instead of 750"):
        result = evaluate(wordllama, tmp_path)
    assert result.tasks["STS13"].protocol["missing_subsets"] == ["headlines"]


def test_a_transform_is_fitted_on_all_sentences_of_each_task(wordllama, tmp_path, write_stsb, write_year):
    write_stsb(tmp_path / "b")
    write_year("STS13", tmp_path / "13")
    result = evaluate(wordllama, tmp_path, transform=Whitening(5))
    for task in read_sts(tmp_path):
        fitted = wordllama.fitted(task.target_texts, transform=Whitening(5))
        first, second = (
            [text for subset in task.subsets for text in getattr(subset, side)] for side in ("first", "second")
        )
        gold = np.concatenate([subset.scores for subset in task.subsets])
        expected = spearmanr(cosines(fitted, first, second), gold)[0]
        assert result.tasks[task.name].scores["spearman"] == pytest.approx(expected, abs=1e-6)
    assert result.fitting["transform"] == "whitening"
    assert result.fitting["fit"] == "target"
    assert result.fitting["parameters"] == Whitening(5).get_params()


def test_a_transform_is_fitted_on_the_texts_of_a_file(wordllama, texts, tmp_path, write_stsb):
    (tmp_path / "texts.txt").write_text("\n".join(texts), "utf-8")
    folder = write_stsb(tmp_path / "sts")
    result = evaluate(wordllama, folder, transform=Whitening(5), fit_on=tmp_path / "texts.txt")
    saved_first = evaluate(wordllama.fitted(texts, transform=Whitening(5)), folder)
    assert result.tasks["STSB"].scores == saved_first.tasks["STSB"].scores
    assert not result.fitting["transductive"]
    assert result.fitting["fit"] == str(tmp_path / "texts.txt")


def test_a_fitted_model_is_scored_with_its_map(wordllama, texts, tmp_path, write_stsb):
    model = wordllama.fitted(texts, transform=Whitening(5))
    result = evaluate(model, write_stsb(tmp_path))
    (subset,) = read_sts(tmp_path)[0].subsets
    expected = spearmanr(cosines(model, subset.first, subset.second), subset.scores)[0]
    assert result.tasks["STSB"].scores["spearman"] == pytest.approx(expected, abs=1e-9)
    assert result.model["fingerprint"] == model.fingerprint


def test_the_pairs_of_sick_are_in_the_protocol(wordllama, tmp_path, write_sick):
    result = evaluate(wordllama, write_sick(tmp_path), sickr="test")
    assert (result.tasks["SICKR"].protocol["sickr"], result.tasks["SICKR"].n_items) == ("test", 7)


def test_every_distinct_sentence_is_encoded_once(wordllama, tmp_path, write_stsb, progress):
    folder = write_stsb(tmp_path)
    evaluate(wordllama, folder, progress=progress)
    (subset,) = read_sts(folder)[0].subsets
    n_distinct = len({*subset.first, *subset.second})
    assert progress.complete() == [n_distinct]


def test_two_years_in_one_folder_are_refused(write_year, tmp_path):
    write_year("STS13", tmp_path / "sts")
    write_year("STS14", tmp_path / "sts")
    with pytest.raises(InputError, match="holds files of STS13 and STS14"):
        read_sts(tmp_path)


def test_a_task_found_twice_does_not_matter_where_it_is_not_wanted(write_year, write_stsb, tmp_path):
    for name in ("one", "two"):
        write_year("STS12", tmp_path / name)
    write_stsb(tmp_path / "b")
    assert [task.name for task in read_sts(tmp_path, tasks=["STSB"])] == ["STSB"]


def test_linked_folders_are_searched_once(write_stsb, tmp_path):
    write_stsb(tmp_path / "elsewhere")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "sts").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data" / "loop").symlink_to(tmp_path / "data")
    assert [task.name for task in read_sts(tmp_path / "data")] == ["STSB"]


def test_columns_of_the_benchmark_have_numbers_too(tmp_path, write_stsb):
    write_stsb(tmp_path)
    file = next(tmp_path.rglob("sts-test.csv"))
    lines = [line.split("\t") for line in file.read_text("utf-8").splitlines()]
    by_name, by_number = read_scored_pairs(file), read_scored_pairs(file, columns="6,7,5")
    assert by_number.first == by_name.first == tuple(line[5] for line in lines)
    assert by_number.scores.tolist() == [float(line[4]) for line in lines]
