import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pyarrow.parquet as pq
import pytest

import isosent
from isosent.cli.main import COMMANDS, app
from isosent.demo import run_demo
from isosent.encoders.reference import GRAMMAR
from isosent.evaluation.result_file import read_result
from isosent.evaluation.sts import YEAR_SUBSETS

GLOVE = "man 1 2 3\ndog 2 1 5\ncat 3 -1 0\nyak 0 0 7\n"
TEXTS = "a man\na dog\n\ncat and yak\nthe man, the cat\n"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    (tmp_path / "glove.txt").write_text(GLOVE)
    (tmp_path / "texts.txt").write_text(TEXTS)
    return tmp_path


def encode(*more, texts="texts.txt", model="words:glove.txt", output="v.npy"):
    return ("encode", texts, "-m", model, "-o", output, *more)


def fit(*more, texts="texts.txt", model="words:glove.txt", output="model"):
    return ("fit", texts, "-m", model, "-o", output, *more)


@pytest.fixture(scope="module")
def demo_report():
    return run_demo()


@pytest.fixture
def demo(isosent_, monkeypatch, demo_report):
    """The demo, measured once."""

    def demo(*arguments, **changed):
        monkeypatch.setattr("isosent.cli.fit.run_demo", lambda: demo_report._replace(**changed))
        return isosent_("demo", *arguments)

    return demo


def test_the_demo_shows_four_steps_and_writes_nothing(demo, here):
    before = set(here.iterdir())
    finished = demo()
    assert (finished.code, finished.err) == (0, "")
    for words in ("1. One pool", "2. The same pool", "Center these", "3. A good model", "Keep these", "4. Search"):
        assert words in finished.out
    assert len(finished.out.splitlines()) <= 40
    assert set(here.iterdir()) == before


def test_every_command_of_the_demo_runs_as_printed_on_the_texts_that_it_writes(demo, isosent_, here, monkeypatch):
    finished = demo("--texts", "try")
    commands = [line.strip() for line in finished.out.splitlines() if line.startswith("     isosent ")]
    assert len(commands) == 8
    monkeypatch.chdir(here / "try")
    outputs = []
    for command in commands:
        _, *arguments = shlex.split(command)
        ran = isosent_(*arguments)
        assert ran.code == 0, (command, ran.err)
        outputs.append(ran.out)
    assert "lang erased" in outputs[0]
    assert "For pairs of texts alone: whiten with strength" in outputs[1]
    assert "Keep these vectors unchanged" in outputs[2]
    assert "remember my password" in outputs[6]
    assert "no match" in outputs[7]


def test_the_demo_replaces_its_own_texts_only(isosent_, here):
    (here / "try").mkdir()
    (here / "try" / "pool.csv").write_text("text\nmine\n")
    refused = isosent_("demo", "--texts", "try")
    assert (refused.code, refused.out) == (2, "")
    assert "pool.csv exists" in refused.err
    assert not (here / "try" / "texts.txt").exists()
    assert "texts.txt: not a folder" in isosent_("demo", "--texts", "texts.txt").err


def test_the_demo_shows_how_to_search_where_faiss_is_missing(demo):
    finished = demo(searched=None)
    assert "pip install 'isosent[search]'" in finished.out
    assert "isosent search index" in finished.out
    assert "no match" not in finished.out.partition("Needs")[2]


def test_the_package_can_be_run_as_a_module(here):
    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "isosent", *arguments], capture_output=True, text=True, check=False
        )

    assert run("--version").stdout.startswith("isosent ")
    refused = run("fit", "none.txt", "-o", "model")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "none.txt" in refused.stderr


def test_encode_writes_an_array_with_row_i_for_text_i(isosent_, here):
    finished = isosent_(*encode())
    assert (finished.code, finished.err) == (0, "")
    assert finished.out == "v.npy: 5 x 3 float32; texts without a vector: 1\ntokens: 12; unknown: 6 (50.0%)\n"
    vectors = np.load(here / "v.npy")
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, [[1, 2, 3], [2, 1, 5], [0, 0, 0], [1.5, -0.5, 3.5], [2, 0.5, 1.5]])


def test_encode_takes_wordllama_where_no_model_is_named(isosent_, here, wordllama):
    assert isosent_("encode", "texts.txt", "-o", "v.npy").code == 0
    np.testing.assert_array_equal(np.load(here / "v.npy"), wordllama.encode(isosent.read_texts("texts.txt")))


def test_encode_writes_texts_vectors_and_fingerprint_to_parquet(isosent_, here):
    assert isosent_(*encode(output="v.parquet")).code == 0
    table = pq.ParquetFile(here / "v.parquet").read()
    model = isosent.load("words:glove.txt")
    assert table.column("text").to_pylist() == isosent.read_texts("texts.txt")
    np.testing.assert_array_equal(
        np.array(table.column("vector").to_pylist(), np.float32), model.encode(table.column("text").to_pylist())
    )
    assert str(table.schema.field("vector").type) == "fixed_size_list<element: float>[3]"
    metadata = {name.decode(): value.decode() for name, value in table.schema.metadata.items()}
    assert metadata["isosent.fingerprint"] == model.fingerprint
    assert metadata["isosent.reference"] == f"words:{here / 'glove.txt'}"


def test_encode_reads_standard_input(isosent_, here):
    assert isosent_(*encode(texts="-"), stdin=b"dog\r\nman\n").code == 0
    np.testing.assert_array_equal(np.load(here / "v.npy"), [[2, 1, 5], [1, 2, 3]])


def test_encode_reads_a_column(isosent_, here):
    (here / "texts.csv").write_text("id,text\n1,man\n2,dog\n")
    assert isosent_(*encode("--column", "text", texts="texts.csv")).code == 0
    np.testing.assert_array_equal(np.load(here / "v.npy"), [[1, 2, 3], [2, 1, 5]])


def test_encode_replaces_an_older_file(isosent_, here):
    (here / "v.npy").write_bytes(b"old")
    assert isosent_(*encode()).code == 0
    assert np.load(here / "v.npy").shape == (5, 3)


def test_options_follow_the_reference(isosent_, here, refuses):
    (here / "texts.txt").write_text("MAN\n")
    assert "texts without a vector: 1\n" in isosent_(*encode(model="words:glove.txt?lowercase=false")).out
    refuses(isosent_(*encode("--weighting", "mean")), "option", "--weighting", "-m 'MODEL?weighting=VALUE'")
    assert "MODEL?" not in isosent_("data", "list", "--weighting", "mean").err


def test_texts_of_unknown_words_only_give_zero_rows(isosent_, here):
    (here / "texts.txt").write_text("zebra\nunicorn\n")
    finished = isosent_(*encode())
    printed = "v.npy: 2 x 3 float32; texts without a vector: 2\ntokens: 2; unknown: 2 (100.0%)\n"
    assert (finished.code, finished.out) == (0, printed)
    assert not np.load(here / "v.npy").any()


def test_fit_encode_and_info_agree(isosent_, here):
    fitted = isosent_(*fit("--dims", "2", "--strength", "0.5"))
    assert (fitted.code, fitted.err) == (0, "")
    assert "fitted on 4 texts, texts without a vector: 1\n" in fitted.out
    assert isosent_(*encode(model="model", output="v.parquet")).code == 0
    finished = isosent_("info", "model", "--json")
    facts = json.loads(finished.out)
    assert (finished.code, finished.err) == (0, "")
    assert (facts["dim"], facts["encoder_dim"]) == (2, 3)
    assert facts["reference"] == f"words:{here / 'glove.txt'}"
    assert facts["options"] == {
        "lowercase": "true",
        "tokenizer": "wordpunct",
        "punctuation": "keep",
        "stop_words": "keep",
        "unknown": "skip",
        "weighting": "mean",
    }
    (record,) = facts["fits"]
    settings = isosent.Whitening(2, strength=0.5).get_params()
    assert (record["transform"], record["parameters"]) == ("whitening", settings)
    assert (record["n_texts"], record["n_zero_rows"], record["source"]) == (4, 1, "texts.txt")
    metadata = pq.ParquetFile(here / "v.parquet").schema_arrow.metadata
    assert metadata[b"isosent.fingerprint"].decode() == facts["fingerprint"]


def test_fit_shows_the_space_before_and_after(isosent_):
    out = isosent_(*fit("--dims", "2")).out
    for word in ("before", "after", "mean cosine of random pairs", "effective rank", "dimensions", "bytes per vector"):
        assert word in out


def test_a_purpose_reaches_auto(isosent_, here):
    for purpose in ("pairs", "topics", "search"):
        assert isosent_(*fit("--for", purpose)).code == 0
        assert isosent.load(here / "model").fits[-1].choice["purpose"] == purpose
    refused = isosent_(*fit("--for", "clusters"))
    assert refused.code == 2
    assert "'clusters'" in refused.err
    assert "topics" in refused.err
    refused = isosent_(*fit("--for", "topics", "--transform", "whitening"))
    assert refused.code == 2
    assert "--for" in refused.err


def test_fit_reads_standard_input(isosent_, here):
    assert isosent_(*fit("--dims", "1", texts="-"), stdin=TEXTS.encode()).code == 0
    assert isosent.load(here / "model").fits[0].n_texts == 4


def test_fit_over_an_older_model_replaces_it(isosent_, here):
    isosent_(*fit("--dims", "2"))
    assert isosent_(*fit("--dims", "1")).code == 0
    assert isosent.load(here / "model").dim == 1


def test_fit_on_a_fitted_model_folds(isosent_, here):
    isosent_(*fit("--dims", "2"))
    assert isosent_(*fit("--dims", "1", model="model", output="second")).code == 0
    assert len(isosent.load(here / "second").fits) == 2


def test_info_tells_people_the_same(isosent_):
    isosent_(*fit("--dims", "2"))
    finished = isosent_("info", "model")
    facts = json.loads(isosent_("info", "model", "--json").out)
    assert finished.code == 0
    assert facts["fingerprint"] in finished.out
    assert facts["reference"] in finished.out


def test_info_of_a_bare_encoder_has_no_fits(isosent_):
    facts = json.loads(isosent_("info", "words:glove.txt", "--json").out)
    assert (facts["fits"], facts["dim"]) == ([], 3)


def test_info_needs_no_encoder_for_a_saved_folder(isosent_, here):
    isosent_(*fit("--dims", "2"))
    (here / "glove.txt").unlink()
    assert isosent_("info", "model").code == 0


def test_a_model_whose_encoder_was_moved_opens_with_an_option(isosent_, here):
    isosent_(*fit("--dims", "2"))
    (here / "glove.txt").rename(here / "moved.txt")
    assert isosent_(*encode(model="model?encoder=words:moved.txt")).code == 0


def strip_lines(printed):
    return "\n".join(line.strip() for line in printed.splitlines())


def test_evaluate_sts_prints_a_table_of_hundredfold_scores(isosent_, here, write_stsb):
    write_stsb(here / "sts")
    finished = isosent_("evaluate", "sts", "--data", "sts")
    assert finished.code == 0
    assert finished.err.startswith("warning: STSB: 12 items in test instead of 1,379.")
    score = isosent.evaluate(isosent.load(), here / "sts").tasks["STSB"].scores["spearman"]
    (row,) = [line for line in finished.out.splitlines() if "spearman all" in line]
    assert f"{100 * score:.2f}" in row
    told = strip_lines("\n".join(line for line in finished.out.splitlines() if not line.startswith("†")))
    assert "model: wordllama?weighting=mean\ndimensions: 256\ntexts without a vector: 0\n" in told
    assert "\nunknown tokens: 0 of " in told


def test_evaluate_says_where_many_tokens_are_unknown(isosent_, here, write_stsb):
    write_stsb(here / "sts")
    (here / "few.txt").write_text("the 1 2\na 2 1\nis 3 1\n")
    told = isosent_("evaluate", "sts", "--data", "sts", "-m", "words:few.txt").out
    assert re.search(r"STSB: .*\d+% of the tokens are unknown", told)
    task = json.loads(isosent_("evaluate", "sts", "--data", "sts", "-m", "words:few.txt", "--json").out)["tasks"][
        "STSB"
    ]
    assert not task["is_comparable"]
    assert any("unknown" in why for why in task["deviations"])


def test_evaluate_sts_names_what_a_model_was_fitted_on(isosent_, here, write_stsb):
    write_stsb(here / "sts")
    model = isosent.load().fitted(isosent.demo_texts(), transform=isosent.Whitening(8), source="corpus.txt")
    model.save(here / "m")
    finished = isosent_("evaluate", "sts", "--data", "sts", "-m", "m")
    assert re.search(
        r"-> whitening\(.*n_components=8.*\) fitted on corpus.txt\ndimensions: 8", strip_lines(finished.out)
    )


def test_evaluate_sts_prints_json_in_place_of_the_table(isosent_, here, write_stsb):
    write_stsb(here / "sts")
    finished = isosent_("evaluate", "sts", "--data", "sts", "--json")
    assert json.loads(finished.out)["tasks"]["STSB"]["n_items"] == 12


@pytest.mark.parametrize(
    "arguments",
    [
        ("encode", "texts.txt", "-o", "nowhere/v.npy"),
        ("fit", "texts.txt", "-o", "nowhere/m"),
        ("fit", "texts.txt", "-o", "m", "--dims", "400"),
        ("fit", "texts.txt", "-o", "m", "--strength", "2"),
    ],
)
def test_what_cannot_be_written_or_fitted_is_refused_before_any_text_is_encoded(isosent_, here, arguments, monkeypatch):
    def encode(*_, **__):
        raise AssertionError("encoded before the check")

    monkeypatch.setattr("isosent.encoders.base.Encoder.encode", encode)
    assert isosent_(*arguments).code == 2


def test_a_table_in_a_file_keeps_whole_rows_whatever_the_width_of_the_terminal(
    isosent_, here, write_year, write_stsb, monkeypatch
):
    write_stsb(here / "sts" / "b")
    for task in YEAR_SUBSETS:
        write_year(task, here / "sts" / task)
    printed = set()
    for columns in ("40", "400"):
        monkeypatch.setenv("COLUMNS", columns)
        printed.add(isosent_("evaluate", "sts", "--data", "sts", "--resamples", 10).out)
    (table,) = printed
    (row,) = [line for line in table.splitlines() if "spearman all" in line]
    assert row.count(".") == 7
    assert 40 < len(row) <= 100


def test_evaluate_sts_writes_all_numbers_as_json(isosent_, here, write_stsb, write_year):
    write_stsb(here / "sts" / "b")
    write_year("STS13", here / "sts" / "13")
    settings = ("--transform", "whitening", "--dims", "5", "--strength", "0.5")
    finished = isosent_("evaluate", "sts13,STSB", "--data", "sts", "-o", "r.json", *settings)
    assert finished.code == 0, finished.err
    transform = isosent.Whitening(5, strength=0.5)
    expected = isosent.evaluate(isosent.load(), here / "sts", transform=transform)
    written = read_result(here / "r.json")
    assert {name: task.scores for name, task in written.tasks.items()} == {
        name: task.scores for name, task in expected.tasks.items()
    }
    assert (written.model, written.fitting) == (expected.model, expected.fitting)


def test_evaluate_sts_can_fit_on_a_file(isosent_, here, write_stsb, texts):
    write_stsb(here / "sts")
    (here / "fit.txt").write_text("\n".join(texts), "utf-8")
    settings = ("--transform", "whitening", "--dims", "5", "--fit-on", "fit.txt", "-o", "r.json")
    assert isosent_("evaluate", "sts", "--data", "sts", *settings).code == 0
    assert json.loads((here / "r.json").read_text("utf-8"))["fitting"]["fit"] == "fit.txt"


def test_evaluate_sts_warns_of_missing_subsets_on_standard_error(isosent_, here, write_year):
    write_year("STS13", here / "sts", subsets=["FNWN"])
    finished = isosent_("evaluate", "sts", "--data", "sts")
    assert finished.code == 0
    assert finished.err.startswith("warning: STS13: ")
    assert "0 items in OnWN instead of 561; 0 items in headlines instead of 750" in finished.err
    assert "warning:" not in finished.out


def test_help_lists_every_command_on_one_screen(isosent_):
    finished = isosent_("--help")
    assert (finished.code, finished.err) == (0, "")
    for commands in COMMANDS.values():
        for name, (_, summary) in commands.items():
            assert name in finished.out
            assert summary in finished.out
    assert GRAMMAR.splitlines()[0] not in finished.out
    assert len(finished.out.splitlines()) <= 60
    assert isosent_().out == finished.out


@pytest.mark.parametrize("command", [name for commands in COMMANDS.values() for name in commands])
def test_every_command_has_a_short_help_and_at_most_30_options(isosent_, command):
    finished = isosent_(command, "--help")
    assert (finished.code, finished.err) == (0, "")
    assert finished.out.startswith(f"Usage: isosent {command} ")
    assert finished.out.count("\n  -") <= 31
    assert max(map(len, finished.out.splitlines())) <= 100
    assert "\\b" not in finished.out


def commands_of(command, name):
    if hasattr(command, "list_commands"):
        context = click.Context(command)
        for sub in command.list_commands(context):
            yield from commands_of(command.get_command(context, sub), f"{name} {sub}")
    else:
        yield name, command


def test_every_help_has_an_example_of_its_command():
    commands = dict(commands_of(app, "isosent"))
    assert len(commands) > 30
    # "isosent index texts.txt" needs no subcommand
    examples = {name: name.replace(" create", "") for name in commands}
    assert [name for name, command in commands.items() if f"\n    {examples[name]}" not in command.help] == []


def test_help_of_export_begins_with_the_format(isosent_):
    options = isosent_("export", "--help").out.partition("Options:\n")[2]
    assert options.lstrip().startswith("--to ")


def test_the_version_is_printed(isosent_):
    finished = isosent_("--version")
    assert (finished.code, finished.err) == (0, "")
    assert finished.out.startswith("isosent ")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("encode", "texts.txt"), "Missing option '--output'"),
        (("encode", "-o", "v.npy"), "Missing argument 'INPUTS...'"),
        (("evalaute", "sts"), "No such command 'evalaute'. Did you mean 'evaluate'?"),
        (("fit", "texts.txt", "-o", "m", "--dim", "3"), "--dims"),
        (("encode", "texts.txt", "-o", "v.npy", "--dtype", "int8"), "'float32', 'float16'"),
        (("words",), "Missing command"),
    ],
)
def test_a_wrong_command_line_exits_with_2_and_says_why(isosent_, command, words, refuses):
    finished = isosent_(*command)
    refuses(finished, words)
    assert finished.err.splitlines()[1].startswith("Try: isosent")


@pytest.mark.parametrize("command", [encode, fit])
def test_a_missing_file_is_refused(isosent_, command, refuses):
    refuses(isosent_(*command(texts="nowhere.txt")), "nowhere.txt: no such file")


@pytest.mark.parametrize("command", [encode, fit])
def test_an_empty_file_is_refused(isosent_, here, command, refuses):
    (here / "empty.txt").write_bytes(b"")
    refuses(isosent_(*command(texts="empty.txt")), "empty.txt is empty")


@pytest.mark.parametrize("command", [encode, fit])
def test_a_directory_without_texts_is_refused(isosent_, here, command, refuses):
    (here / "empty").mkdir()
    refuses(isosent_(*command(texts="empty")), "empty: no file there, or none that ends in", ".txt, .csv")


def test_a_missing_column_lists_those_that_are_there(isosent_, here, refuses):
    (here / "texts.csv").write_text("id,text\n1,man\n")
    refuses(isosent_(*encode("--column", "body", texts="texts.csv")), "has no column body; it has: id, text.")


def test_a_table_without_a_chosen_column_lists_those_that_are_there(isosent_, here, refuses):
    (here / "texts.csv").write_text("title,body\na dog,a man walks\n")
    refuses(isosent_(*fit(texts="texts.csv")), "has 2 columns (title, body). Choose one: --column NAME")


def test_undecodable_bytes_are_refused_with_their_line(isosent_, here, refuses):
    (here / "texts.txt").write_bytes(b"man\ncaf\xe9\n")
    refuses(isosent_(*encode()), "texts.txt, line 2 is not UTF-8: byte 0xe9. Convert the file to UTF-8")


def test_a_bad_word_vector_file_is_refused_with_its_line(isosent_, here, refuses):
    (here / "glove.txt").write_text("man 1 2 3\ndog 2 1\n")
    refuses(isosent_(*encode()), "glove.txt, line 2: expected a word and 3 numbers")


def test_a_missing_word_vector_file_is_refused(isosent_, refuses):
    refuses(isosent_(*encode(model="words:nowhere.txt")), "nowhere.txt: no such file")


def test_a_damaged_gzip_file_is_refused(isosent_, here, refuses):
    (here / "glove.txt").write_bytes(b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03" + b"\xff" * 50)
    refuses(isosent_(*encode()), "glove.txt")


@pytest.mark.parametrize("dims", ["4", "0", "-1"])
def test_dimensions_outside_those_of_the_vectors_are_refused(isosent_, here, dims, refuses):
    refuses(isosent_(*fit("--dims", dims)), f"--dims {dims}: choose 1 to 3, ")
    assert not (here / "model").exists()


@pytest.mark.parametrize("strength", ["1.5", "-0.1", "nan"])
def test_a_strength_outside_0_to_1_is_refused(isosent_, here, strength, refuses):
    refuses(isosent_(*fit("--strength", strength)), "strength", strength)
    assert not (here / "model").exists()


@pytest.mark.parametrize("command", [encode, fit])
def test_zero_texts_are_refused(isosent_, here, command, refuses):
    (here / "texts.csv").write_text("text\n")
    refuses(isosent_(*command(texts="texts.csv")), "holds no texts")


def test_zero_texts_from_standard_input_are_refused(isosent_, refuses):
    refuses(isosent_(*encode(texts="-"), stdin=b""), "standard input is empty")


def test_texts_of_unknown_words_only_cannot_be_fitted(isosent_, here, refuses):
    (here / "texts.txt").write_text("zebra\nunicorn\n")
    refuses(isosent_(*fit()), "the encoder knows no word of the 2 texts")
    assert not (here / "model").exists()


def test_texts_that_are_all_the_same_cannot_be_fitted(isosent_, here, refuses):
    (here / "texts.txt").write_text("man\nman\n")
    refuses(isosent_(*fit("--transform", "whitening")), "the rows do not vary")


def test_a_folder_without_sts_files_is_refused(isosent_, refuses):
    refuses(isosent_("evaluate", "sts", "--data", "."), "holds no STS files. Known names: ")


def test_a_missing_sts_folder_is_refused(isosent_, refuses):
    refuses(isosent_("evaluate", "sts", "--data", "nowhere"), "nowhere: no such folder")


def test_unequal_numbers_of_sentences_and_scores_are_refused(isosent_, here, write_year, refuses):
    (write_year("STS13", here / "sts") / "STS.gs.FNWN.txt").write_text("1\n2\n")
    refuses(isosent_("evaluate", "sts", "--data", "sts"), "FNWN.txt has 6 lines and STS.gs.FNWN.txt has 2.")


def test_equal_scores_are_refused(isosent_, here, write_year, refuses):
    (write_year("STS13", here / "sts") / "STS.gs.FNWN.txt").write_text("1\n" * 6)
    refuses(
        isosent_("evaluate", "sts", "--data", "sts"),
        "the scores of the 6 pairs of FNWN are all 1,",
    )


def test_an_unknown_task_is_refused(isosent_, here, write_stsb, refuses):
    write_stsb(here / "sts")
    refuses(isosent_("evaluate", "STSB,STS11", "--data", "sts"), "no task 'STS11'", "Did you mean STS1")


def test_an_unknown_transform_is_refused(isosent_, here, write_stsb, refuses):
    write_stsb(here / "sts")
    words = "there is no transform 'whiten'."
    refuses(isosent_(*fit("--transform", "whiten")), words)
    refuses(isosent_("evaluate", "sts", "--data", "sts", "--transform", "whiten"), words)


def test_texts_to_fit_on_without_a_transform_are_refused(isosent_, here, write_stsb, refuses):
    write_stsb(here / "sts")
    refuses(isosent_("evaluate", "sts", "--data", "sts", "--fit-on", "texts.txt"), "texts.txt", "transform")


@pytest.mark.parametrize(
    "command",
    [("encode", "texts.txt", "-o", "v.npy"), ("fit", "texts.txt", "-o", "m"), ("evaluate", "sts", "--data", ".")],
)
def test_an_unknown_reference_is_refused_with_the_kinds_of_models(isosent_, command, refuses):
    refuses(isosent_(*command, "-m", "nowhere"), "'nowhere' is neither a model nor a folder.", "isosent help models")


def test_an_unknown_reference_of_info_is_refused_too(isosent_, refuses):
    refuses(isosent_("info", "bert:x"), "'bert:x' has the unknown prefix bert:.", "isosent help models")


def test_help_of_models_lists_all_options(isosent_):
    finished = isosent_("help", "models")
    assert (finished.code, finished.out) == (0, f"{GRAMMAR}\n")


def test_an_option_for_another_kind_of_model_is_refused_in_one_line(isosent_, refuses):
    done = isosent_(*encode(model="words:glove.txt?layers=1"))
    refuses(done, "words:FILE[,FILE...] has no option layers. It takes lowercase, tokenizer, ")
    assert GRAMMAR not in done.err


def test_a_folder_that_is_no_model_is_refused(isosent_, here, refuses):
    (here / "folder").mkdir()
    refuses(isosent_(*encode(model="folder")), "folder is not a model saved by isosent: it has no model.json.")


@pytest.mark.parametrize("output", ["v.txt", "v.npz"])
def test_another_output_ending_is_refused_before_anything_is_read(isosent_, output, refuses):
    refuses(isosent_(*encode(texts="nowhere.txt", output=output)), f"{output}: vectors cannot be written")


def test_a_missing_output_folder_is_refused(isosent_, refuses):
    refuses(isosent_(*encode(output="nowhere/v.npy")), "there is no folder ")


def test_a_missing_folder_for_json_is_refused(isosent_, here, write_stsb, refuses):
    write_stsb(here / "sts")
    refuses(isosent_("evaluate", "sts", "--data", "sts", "-o", "nowhere/r.json"), "there is no folder ")


def test_an_output_folder_that_holds_something_else_is_refused(isosent_, here, refuses):
    (here / "thesis").mkdir()
    (here / "thesis" / "chapter1.txt").write_text("years of work")
    refuses(isosent_(*fit("--dims", "2", output="thesis")), "thesis exists, and is neither empty nor an isosent model")


def test_a_lone_surrogate_in_a_text_is_no_fault_of_isosent(isosent_, here, refuses):
    (here / "texts.jsonl").write_text('{"text": "\\ud800"}\n')
    refuses(isosent_(*encode(texts="texts.jsonl", output="v.parquet")), "line 1")


def test_a_name_with_colons_is_repeated_as_it_is_written(isosent_, refuses):
    refuses(isosent_(*encode(texts="a:rocket:b.txt")), "a:rocket:b.txt: no such file")


def test_a_warning_of_rank_is_shown_for_more_dimensions_than_the_texts_span(isosent_, here):
    (here / "texts.txt").write_text("man\ndog\n")
    finished = isosent_(*fit("--dims", "3"))
    assert finished.code == 0
    assert finished.err.startswith(
        "warning: auto: dimensions kept: 1 instead of 3, because the vectors vary along no more"
    )
    assert "warning:" not in finished.out
    assert isosent.load(here / "model").dim == 1


def test_a_warning_of_repeated_words_is_shown(isosent_, here):
    (here / "glove.txt").write_text(GLOVE + "man 9 9 9\n")
    finished = isosent_(*encode())
    assert finished.code == 0
    assert finished.err.startswith("warning: ")
    assert "glove.txt repeats words: rows left out: 1; the first row of each word is kept." in finished.err


def test_no_progress_bar_is_drawn_where_standard_error_is_no_terminal(isosent_, here, write_stsb):
    write_stsb(here / "sts")
    for command in (encode(), fit("--dims", "2"), ("evaluate", "sts", "--data", "sts")):
        lines = isosent_(*command).err.splitlines()
        assert [line for line in lines if not line.startswith(("warning: STSB: 12 items", "evaluating: 24"))] == []


def test_an_interrupted_run_says_so_and_exits_with_130(isosent_, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("isosent.cli.encode.open_texts", interrupt)
    finished = isosent_(*encode())
    assert (finished.code, finished.out) == (130, "")
    assert finished.err.endswith("interrupted\n")


def test_a_fault_of_ours_exits_with_1_and_asks_for_a_report(isosent_, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError("mine")

    monkeypatch.setattr("isosent.cli.encode.open_texts", fail)
    finished = isosent_(*encode())
    assert (finished.code, finished.out) == (1, "")
    assert "ZeroDivisionError: mine" in finished.err
    assert "This is a bug in isosent. Please report it" in finished.err


def test_the_installed_command_encodes_standard_input(here):
    command = [Path(sys.executable).with_name("isosent"), "encode", "-", "-m", "words:glove.txt", "-o", "v.npy"]
    finished = subprocess.run(command, input=b"dog\nman\n", capture_output=True, timeout=120, check=False)
    assert (finished.returncode, finished.stderr) == (0, b"")
    assert finished.stdout.startswith(b"v.npy: 2 x 3 float32; texts without a vector: 0\n")
    np.testing.assert_array_equal(np.load(here / "v.npy"), [[2, 1, 5], [1, 2, 3]])


def test_a_hostile_value_is_shortened_and_cannot_command_the_terminal(isosent_, here):
    (here / "t.csv").write_text(f"\x1b[31m{'a' * 100_000},b\n1,2\n")
    finished = isosent_("encode", "t.csv", "-o", "v.npy", "--column", "c")
    assert finished.code == 2
    assert "no column c" in finished.err
    assert "\x1b" not in finished.err
    assert len(finished.err) < 2000
