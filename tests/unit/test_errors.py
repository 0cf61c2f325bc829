"""What an error or a warning says wherever Python shows it."""

import pickle
import warnings

import pytest

import isosent
from isosent.errors import (
    InputError,
    InputFileError,
    MissingExtraError,
    OutputError,
    command,
    option,
    quoted,
    with_options,
)
from isosent.io.source import open_source


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


def test_a_command_is_a_call_in_python_and_its_values_are_quoted():
    error = InputError(f"Run {command('fit TEXTS', 'model.fitted(texts)', transform='auto')}, {option('n', 3)}.")
    assert str(error) == "Run model.fitted(texts), n=3."
    assert str(InputError(option("column", "a b"))) == "column='a b'"
    in_shell = with_options(error.marked, lambda name, value: f"--{name} {value}")
    assert in_shell == "Run isosent fit TEXTS --transform auto, --n 3."


def test_a_class_in_place_of_a_transform_is_named():
    with pytest.raises(TypeError, match=r"class Whitening\. Write Whitening\(\)"):
        isosent.load("wordllama").fitted(["a"], isosent.Whitening)
