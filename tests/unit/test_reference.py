import re
from pathlib import Path

import pytest

from isosent import load
from isosent.encoders.reference import (
    GRAMMAR,
    OPTIONS,
    SCHEMES,
    Reference,
    escape,
    parse_reference,
    unescape,
    write_options,
)
from isosent.errors import ModelReferenceError


def refuses(text, words, options=None):
    """In one line: what is wrong is known, and how to put it right."""
    with pytest.raises(ModelReferenceError, match=words) as caught:
        parse_reference(text, options)
    assert len(str(caught.value).splitlines()) == 1


def does_not_understand(text, words):
    with pytest.raises(ModelReferenceError, match=words) as caught:
        parse_reference(text)
    assert str(caught.value).endswith("All options: isosent help models")
    assert len(str(caught.value).splitlines()) == 1


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("text", "scheme", "location"),
    [
        ("wordllama", "wordllama", ""),
        ("words:glove.txt", "words", "glove.txt"),
        ("words:/data/a.txt,../b.bin", "words", "/data/a.txt,../b.bin"),
        ("static:potion", "static", "potion"),
        ("hf:bert-base-uncased", "hf", "bert-base-uncased"),
        ("hf:org/name@v1.0", "hf", "org/name@v1.0"),
        ("hf:/models/bert", "hf", "/models/bert"),
    ],
)
def test_every_row_of_the_grammar_is_understood(text, scheme, location):
    assert parse_reference(text) == Reference(scheme, location, {})


def test_a_saved_folder_is_understood_by_its_model_file(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.json").write_text("{}")
    assert parse_reference("model") == Reference("folder", "model", {})
    assert parse_reference(str(tmp_path / "model")) == Reference("folder", str(tmp_path / "model"), {})


def test_the_grammar_names_every_kind_and_every_option():
    for scheme in SCHEMES.values():
        assert f"  {scheme.syntax} " in GRAMMAR
    for option in OPTIONS.values():
        assert f"  {option.name}={option.values} " in GRAMMAR or re.search(rf"  .*: .*\b{option.name}\b", GRAMMAR)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("words:g.txt?lowercase=false", {"lowercase": False}),
        ("words:g.txt?lowercase=TRUE&tokenizer=whitespace", {"lowercase": True, "tokenizer": "whitespace"}),
        ("words:g.txt?tokenizer=wordpunct", {"tokenizer": "wordpunct"}),
        ("static:d?normalize=True&max_length=128", {"normalize": True, "max_length": 128}),
        ("static:d?max_length=None", {"max_length": None}),
        ("hf:d?layers=1,-1&pooling=mean", {"layers": "1,-1", "pooling": "mean"}),
        ("hf:d?layers=0&pooling=mean,max&dense=false", {"layers": "0", "pooling": "mean,max", "dense": False}),
        ("hf:d?max_length=064", {"max_length": 64}),
        ("words:g.txt?", {}),
    ],
)
def test_options_are_checked_and_stored_in_one_spelling(text, options):
    assert parse_reference(text).options == options


def test_the_encoder_of_a_saved_folder_may_have_options_of_its_own(tmp_path):
    (tmp_path / "model").mkdir()
    parsed = parse_reference("model?encoder=words:/a+b/g.txt?lowercase=true")
    assert parsed.options == {"encoder": "words:/a+b/g.txt?lowercase=true"}


def test_flags_win_over_written_options():
    parsed = parse_reference("words:g.txt?lowercase=false&tokenizer=whitespace", {"lowercase": "true"})
    assert parsed.options == {"lowercase": True, "tokenizer": "whitespace"}


def test_flags_are_checked_as_written_options_are():
    refuses(
        "words:g.txt",
        r"'words:g\.txt': lowercase=maybe: choose true or false\.",
        {"lowercase": "maybe"},
    )


def test_an_unknown_prefix_is_refused():
    does_not_understand("glove:file.txt", r"'glove:file\.txt' has the unknown prefix glove:\.")


@pytest.mark.parametrize("prefix", ["words", "static", "hf"])
def test_a_prefix_with_nothing_behind_it_is_refused(prefix):
    does_not_understand(f"{prefix}:", rf"'{prefix}:' names nothing after {prefix}:\.")


@pytest.mark.parametrize("text", ["words", "folder", "/no/such/folder", "./no/such/folder", "glove.txt", "~nobody/x"])
def test_what_is_neither_a_reference_nor_a_folder_is_refused(text):
    does_not_understand(text, rf"'{re.escape(text)}' is neither a model nor a folder\.")


def test_a_file_is_no_model(tmp_path):
    (tmp_path / "glove.txt").write_text("a 1 2\n")
    refuses("glove.txt", r"'glove\.txt' is neither a model nor a folder\..*words:glove\.txt")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "glove.txt").write_text("a 1 2\n")  # not looked for on the hub
    refuses("data/glove.txt", "It is a file")


def test_the_closest_name_is_suggested(tmp_path):
    (tmp_path / "my-model").mkdir()
    refuses("wordlama", "Did you mean wordllama?")
    refuses("my-modle", "Did you mean my-model?")
    refuses("word:glove.txt", "Did you mean words:?")


def test_a_folder_in_the_home_is_recognized(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert" / "config.json").write_text('{"model_type": "bert"}')
    assert parse_reference("~/bert") == Reference("hf", "~/bert", {})


def test_an_empty_reference_is_refused_even_where_a_model_lies_in_the_current_folder():
    does_not_understand("", r"'' is neither a model nor a folder")


def test_a_reference_longer_than_a_file_name_may_be_is_understood():
    names = ",".join(f"vectors-{number:03d}.txt" for number in range(30))
    assert parse_reference(f"words:{names}") == Reference("words", names, {})


def test_nonsense_longer_than_a_file_name_may_be_is_refused():
    does_not_understand("x" * 300, r"is neither a model nor a folder\.")


def test_an_unknown_option_is_refused():
    refuses(
        "hf:d?layer=1",
        r"'hf:d\?layer=1': there is no option layer\. Did you mean layers\?$",
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "wordllama?normalize=true",
            r"'wordllama\?normalize=true': wordllama has no option normalize\. It takes weighting, zipfian, ",
        ),
        ("words:g.txt?layers=1", r": words:FILE\[,FILE\.\.\.\] has no option layers\. It takes lowercase, tokenizer, "),
        ("static:d?pooling=mean", r": static:ID-OR-DIR has no option pooling\. It takes normalize, max_length, "),
        (
            "hf:d?lowercase=true",
            r": hf:ID-OR-DIR has no option lowercase\. It takes layers, pooling, dense, normalize, max_length, ",
        ),
    ],
)
def test_an_option_for_another_kind_of_model_is_refused(text, words):
    refuses(text, words)


def test_an_option_of_an_encoder_is_refused_for_a_saved_folder(tmp_path):
    (tmp_path / "model").mkdir()
    refuses(
        "model?lowercase=true", r"'model\?lowercase=true': FOLDER has no option lowercase\. It takes encoder, backend, "
    )


def test_a_repeated_option_is_refused():
    refuses("hf:d?layers=1&layers=2", r"'hf:d\?layers=1&layers=2' gives the option layers twice\.")


@pytest.mark.parametrize("query", ["layers", "layers=1&&pooling=mean", "layers=1;pooling"])
def test_options_that_are_not_written_as_name_and_value_are_refused(query):
    refuses(f"hf:d?{query}", r"write the options as name=value&name=value\.|layers=1;pooling: choose layers as in")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("words:g.txt?lowercase=yes", r"lowercase=yes: choose true or false\."),
        ("words:g.txt?lowercase=", r"lowercase=: choose true or false\."),
        (
            "words:g.txt?tokenizer=nltk",
            r"tokenizer=nltk: choose wordpunct, whitespace or a FILE\.json\.",
        ),
        ("static:d?max_length=0", r"max_length=0: choose a whole number above 0, or none\."),
        ("static:d?max_length=-5", r"max_length=-5: choose a whole number above 0, or none\."),
        ("static:d?max_length=long", r"max_length=long: choose a whole number above 0, or none\."),
        ("hf:d?layers=first", r"layers=first: choose layers as in 1,-1 or L1\+L12 .* or all\."),
        ("hf:d?layers=0*1", r"layers=0\*1: choose layers "),
        ("hf:d?layers=", r"layers=: choose layers "),
        (
            "hf:d?pooling=sum",
            r"pooling=sum: choose among mean, cls, max, .* or several of these with ",
        ),
        ("hf:d?dense=1", r"dense=1: choose true or false\."),
    ],
)
def test_a_malformed_value_is_refused(text, words):
    refuses(text, words)


@pytest.mark.parametrize(
    ("options", "written"),
    [
        ({"normalize": True, "max_length": 128}, {"normalize": "true", "max_length": "128"}),
        ({"max_length": None}, {"max_length": "none"}),
        ({"weighting": "sif", "n_components": 1, "a": 1e-4}, {"weighting": "sif", "n_components": "1", "a": "0.0001"}),
        ({"weighting": "p_mean", "powers": [1, 3.5]}, {"weighting": "p_mean", "powers": "1,3.5"}),
        ({"weighting": "sif", "frequencies": Path("a,b.txt")}, {"weighting": "sif", "frequencies": "a%2Cb.txt"}),
    ],
)
def test_options_may_be_values_of_python(options, written):
    parsed = parse_reference("static:d", options).options
    assert write_options(parsed) == written
    assert parse_reference("static:d", written).options == parsed


def test_layers_and_poolings_may_be_lists():
    parsed = parse_reference("hf:d", {"layers": [1, -1], "pooling": ["mean", "cls"], "devices": ["cpu"]})
    assert parsed.options == {"layers": "1,-1", "pooling": "mean,cls", "devices": "cpu"}


@pytest.mark.parametrize(
    "options", [{"normalize": 1}, {"max_length": True}, {"max_length": 1.5}, {"weighting": 3}, {"powers": [[1]]}]
)
def test_a_value_of_the_wrong_type_is_refused(options):
    [(name, _)] = options.items()
    refuses("static:d", f"{name}=.*: choose ", options)


def test_wordllama_is_ambiguous_where_a_model_of_that_name_lies_here(tmp_path):
    (tmp_path / "wordllama").mkdir()
    (tmp_path / "wordllama" / "model.json").write_text("{}")
    refuses("wordllama", r"'wordllama' is also a model folder here\. Write \./wordllama for the folder\.")
    assert parse_reference("./wordllama").scheme == "folder"


def test_another_folder_named_wordllama_is_no_matter(tmp_path):
    (tmp_path / "wordllama").mkdir()
    assert parse_reference("wordllama").scheme == "wordllama"


STATIC_MODULES = '[{"type": "sentence_transformers.models.StaticEmbedding", "path": ""}]'
ST_MODULES = '[{"type": "sentence_transformers.models.Transformer", "path": ""}]'


@pytest.mark.parametrize(
    ("files", "scheme"),
    [
        ({"config.json": '{"model_type": "bert"}'}, "hf"),
        ({"config.json": '{"model_type": "bert"}', "modules.json": ST_MODULES}, "hf"),
        ({"config.json": '{"model_type": "model2vec"}', "modules.json": STATIC_MODULES}, "static"),
        ({"config.json": '{"normalize": true, "seq_length": 1000000}'}, "static"),
        ({"modules.json": STATIC_MODULES}, "static"),
        ({"model.safetensors": "", "tokenizer.json": ""}, "static"),
        ({"model.json": "{}", "config.json": '{"model_type": "bert"}'}, "folder"),
        ({"README.md": ""}, "folder"),
    ],
)
def test_a_folder_is_recognized_by_its_files(tmp_path, files, scheme):
    (tmp_path / "model").mkdir()
    for name, content in files.items():
        (tmp_path / "model" / name).write_text(content)
    assert parse_reference("model") == Reference(scheme, "model", {})


@pytest.mark.parametrize("text", ["sentence-transformers/all-MiniLM-L6-v2", "org/name@v1.0"])
def test_an_id_on_the_hub_needs_no_prefix(text):
    assert parse_reference(f"{text}?pooling=mean") == Reference("hub", text, {"pooling": "mean"})


def test_a_folder_whose_name_has_a_colon_is_still_a_folder(tmp_path):
    (tmp_path / "run:1").mkdir()
    assert parse_reference("run:1") == Reference("folder", "run:1", {})


PATHS = ["plain", "a, b", "why?", "100% sure", "%2C", "%252C", "%3F%25", "%2", "%", "?,%", "a&b=c", "naïve +"]


@pytest.mark.parametrize("path", PATHS)
def test_an_escaped_path_stands_in_a_reference_and_comes_back(path):
    assert unescape(escape(path)) == path
    parsed = parse_reference(f"words:{escape(path)},b.txt?lowercase=false")
    assert [unescape(part) for part in parsed.location.split(",")] == [path, "b.txt"]
    assert parsed.options == {"lowercase": False}


@pytest.mark.parametrize("path", PATHS)
def test_a_saved_folder_is_found_by_its_escaped_path(tmp_path, path):
    (tmp_path / path).mkdir()
    parsed = parse_reference(escape(str(tmp_path / path)))
    assert (parsed.scheme, unescape(parsed.location)) == ("folder", str(tmp_path / path))


def test_the_grammar_says_how_a_path_is_escaped():
    assert GRAMMAR.endswith(
        "%2C, %3F, %26 and %25 stand for a comma, a question mark, an ampersand and a percent sign."
    )


def test_load_names_the_kinds_of_models_too():
    with pytest.raises(ModelReferenceError, match=r"has the unknown prefix bert:\.") as caught:
        load("bert:base")
    assert "words:FILE" in str(caught.value)
