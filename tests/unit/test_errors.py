"""What an error or a warning says wherever Python shows it."""

import pickle
import warnings

import pytest

import isosent
from isosent.errors import (
    InputError,
    InputFileError,
    IsosentWarning,
    MissingExtraError,
    OutputError,
    in_shell,
    next_step,
    option,
    quoted,
)
from isosent.io.source import open_source
from isosent.search import Index


def spellings(said):
    copy = pickle.loads(pickle.dumps(said))
    return [str(said), f"{said}", repr(said), *said.args, str(copy), repr(copy)]


def test_an_option_in_an_error_is_a_parameter_wherever_python_shows_it(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("a,b\nhello world,good day\nanother one,and more\n")
    with pytest.raises(isosent.IsosentError) as caught:
        isosent.read_texts(table)
    for text in spellings(caught.value):
        assert "column='NAME'" in text
        assert text.isprintable()


def test_an_option_in_a_warning_is_a_parameter_wherever_python_shows_it(tmp_path):
    table = tmp_path / "table.jsonl"
    table.write_text('{"text": "a text", "vector": [0.1, 0.2, 0.3]}\n{"text": "more", "vector": [0.3, 0.2, 0.5]}\n')
    with pytest.warns(UserWarning, match="column='text'") as caught:
        assert open_source(table).kind == "vectors"
    said = caught[0]
    shown = warnings.formatwarning(said.message, said.category, said.filename, said.lineno, "")
    for text in [*spellings(said.message), shown.strip()]:
        assert "column='text'" in text
        assert text.isprintable()


@pytest.mark.parametrize("kind", [InputFileError, MissingExtraError, OutputError])
def test_an_error_that_is_quoted_or_sent_keeps_its_options_for_the_shell(kind):
    inner = pickle.loads(pickle.dumps(kind(f"choose {option('Some Name', 3)}", where="fit")))
    outer = kind(f"the job failed: {quoted(inner)}")
    assert str(outer) == "the job failed: fit: choose Some Name=3"
    assert outer.marked == f"the job failed: fit: choose {option('Some Name', 3)}"


def test_what_to_do_next_is_a_command_in_the_shell_and_a_call_in_python(tmp_path):
    with pytest.raises(InputFileError) as caught:
        Index.open(tmp_path)
    for text in spellings(caught.value):
        assert "Index.create(" in text
        assert "isosent index" not in text
        assert text.isprintable()
    assert "isosent index TEXTS" in in_shell(caught.value.marked, lambda *_: "")
    outer = OutputError(f"no: {quoted(InputFileError(next_step('a command', 'a call')))}")
    assert (str(outer), in_shell(outer.marked, lambda *_: "")) == ("no: a call", "no: a command")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:se/cr@et@host/db", "postgresql://me:***@host/db"),
        ("postgresql:/me:secret@host/db", "postgresql:/me:***@host/db"),  # of a path
        ("x://:secret@host?a=1&sslpassword=secret&b=2", "x://:***@host?a=1&sslpassword=***&b=2"),
        ("abfs://c@a/f?client_secret=hush&secret_key=hush&x=1", "abfs://c@a/f?client_secret=***&secret_key=***&x=1"),
        ("http://127.0.0.1:9/a:b", "http://127.0.0.1:9/a:b"),
        ("hf:me/model?layers=1 of a:b@c.de", "hf:me/model?layers=1 of a:b@c.de"),
    ],
)
def test_no_message_shows_the_password_of_a_url(url, shown):
    for said in (isosent.IsosentError(f"{url!r}: no such file."), isosent.IsosentError()):
        said.reword(lambda _: f"{url!r}: no such file.")
        for text in spellings(said):
            assert f"'{shown}'" in text
    assert f"({shown})" in str(InputFileError(f"({url})"))
    assert str(InputFileError("x://me:se'cret@h?api_key=secret")) == "x://me:***@h?api_key=***"


@pytest.mark.parametrize("base", [InputError, OutputError, IsosentWarning])
def test_an_error_of_a_class_that_has_its_own_init_can_be_shown(base):
    class Own(base):
        def __init__(self, code):
            self.code = code

    class Plain(base.__bases__[-1] if base is not InputError else ValueError):
        def __init__(self, code):
            self.code = code

    assert (str(Own(7)), repr(Own(7))) == (str(Plain(7)), repr(Plain(7)).replace("Plain", "Own"))
    assert f"failed: {quoted(Own(7))}" == f"failed: {Plain(7)}"


def test_a_command_is_a_call_in_python_and_its_values_are_quoted():
    fit = f"isosent fit TEXTS {option('transform', 'auto')}"
    error = InputError(f"Run {next_step(fit, 'model.fitted(texts)')}, {option('n', 3)}.")
    assert str(error) == "Run model.fitted(texts), n=3."
    assert str(InputError(option("column", "a b"))) == "column='a b'"
    worded = in_shell(error.marked, lambda name, value: f"--{name} {value}")
    assert worded == "Run isosent fit TEXTS --transform auto, --n 3."


def test_a_class_in_place_of_a_transform_is_named():
    with pytest.raises(TypeError, match=r"class Whitening\. Write Whitening\(\)"):
        isosent.load("wordllama").fitted(["a"], isosent.Whitening)
