"""No message of the command line names anything of Python: many wrong inputs, in one process."""

import re
import shutil
from dataclasses import fields

import click
import numpy as np
import pytest
from safetensors.numpy import save_file

import isosent
from isosent.cli.main import app
from isosent.encoders.reference import OPTIONS
from isosent.search import Index
from isosent.training import TrainingSettings
from isosent.transforms.base import TRANSFORMS

WORDS = ["cat", "dog", "man", "house", "tree", "river", "stone", "bread", "wine", "king", "queen", "child"]
TEXTS = [f"{WORDS[i % 12]} {WORDS[i * i % 12]} {WORDS[i // 3 % 12]} {i}" for i in range(60)]
VECTORS = np.random.default_rng(0).standard_normal((60, 8)).astype(np.float32)
PROXY = "proxy --upstream http://127.0.0.1:9"
TRAIN = "train ranking --data pairs.csv -o out"

# one command line each; those that fail later than the reading of their arguments are about small files
WRONG = f"""
inspect nowhere.txt
inspect empty.txt
inspect latin1.txt
inspect folder
inspect texts.txt -m nowhere
inspect texts.txt -m folder
inspect texts.txt -m words:nowhere.txt
inspect texts.txt -m words:bad.txt
inspect texts.txt -m words:texts.txt
inspect texts.txt -m words:glove.txt?unknown=maybe
inspect texts.txt -m words:glove.txt?foo=1
inspect texts.txt -m words:glove.txt?weighting=bm25
inspect texts.txt -m words:glove.txt?weighting=sif&a=-1
inspect texts.txt -m words:glove.txt?weighting=sif&n_components=8
inspect texts.txt -m words:glove.txt?weighting=gem
inspect texts.txt -m words:glove.txt?weighting=gem&window=999
inspect texts.txt -m words:glove.txt?window=3
inspect texts.txt -m words:glove.txt?weighting=sif&frequencies=bad.txt
inspect texts.txt -m words:glove.txt?layers=1
inspect texts.txt -m words:damaged.safetensors
inspect texts.txt -m words:two.safetensors
inspect texts.txt -m static:folder
inspect texts.txt -m static:glove.txt
inspect texts.txt -m hf:folder
inspect texts.txt -m hf:./nowhere
inspect texts.txt -m hf:folder?backend=jax
inspect texts.txt -m other
inspect texts.txt -m cut
inspect texts.txt -m lacking
inspect texts.txt -m index
inspect texts.txt -m model?weighting=sif
inspect table.csv --column nothing
inspect texts.txt --column text
inspect bad.jsonl
inspect number.jsonl
inspect row.npy
inspect objects.npy
inspect strings.npy
inspect cut.npy
inspect damaged.safetensors
inspect two.safetensors
inspect vectors.npy --texts two.txt
inspect vectors.npy -o report.pdf
inspect vectors.npy --column x
encode texts.txt -m model -o out.txt
encode texts.txt -m model -o out.npy --dtype float8
encode texts.txt -m model -o out --shard-size 0
encode texts.txt -m model -o out.npy --on spark
encode texts.txt -m model -o out.npy --on ray?gpus=1.5
encode vectors.npy -m model -o out.npy
fit texts.txt -m words:glove.txt -o out --dims 1000
fit texts.txt -m words:glove.txt -o out --dims 0
fit texts.txt -m words:glove.txt -o out --dims 1.5
fit texts.txt -m words:glove.txt -o out --dims foo
fit texts.txt -m words:glove.txt -o out --dims auto --transform truncate
fit texts.txt -m words:glove.txt -o out --dims 4 --transform none
fit texts.txt -m words:glove.txt -o out --dims 4 --transform l2_normalize
fit texts.txt -m words:glove.txt -o out --strength 2
fit texts.txt -m words:glove.txt -o out --transform pca
fit texts.txt -m words:glove.txt -o out --transform whitening?dims=1000
fit texts.txt -m words:glove.txt -o out --transform whitening?method=svd
fit texts.txt -m words:glove.txt -o out --transform whitening?eps=-1
fit texts.txt -m words:glove.txt -o out --transform whitening?eps
fit texts.txt -m words:glove.txt -o out --transform whitening?foo=2
fit texts.txt -m words:glove.txt -o out --transform auto?foo=2
fit texts.txt -m words:glove.txt -o out --transform l2_normalize,whitening
fit texts.txt -m words:glove.txt -o out --transform glow_flow,whitening
fit texts.txt -m words:glove.txt -o out --transform glow_flow?n_levels=12
fit texts.txt -m words:glove.txt -o out --transform all_but_the_top?n_components=8
fit texts.txt -m words:glove.txt -o out --queries two.txt --transform none
fit texts.txt -m words:glove.txt -o out --workers 2 --transform none
fit texts.txt -m words:glove.txt -o texts.txt
fit two.txt -m words:glove.txt -o out --transform glow_flow
fit texts.txt vectors.npy -o out
fit vectors.npy small.npy -o out
fit nan.npy -o out
fit zero.npy -o out --transform whitening
fit vectors.npy -o out --pairs small.npy
fit vectors.npy -o out --bytes 100 --dims 4
fit table.csv -o out --erase nothing
transform small.npy -m model -o out.npy
transform nan.npy -m model -o out.npy
transform vectors.npy -m words:glove.txt -o out.npy
similarity a b -m nowhere
info nowhere
info damaged.safetensors
index create texts.txt -m model -o out --kind flatt
index create texts.txt -m model -o out --min-recall 2
index create texts.txt -m model -o out --id-column x
index create table.csv -m model -o out --id-column label
index create vectors.npy -o out --texts two.txt
index add index small.npy
index add nowhere texts.txt
index remove index abc
index push index --to foo://bar
index push index --to lance:
index pull foo://bar -o out
search nowhere query
search model query
search index
search index query --like 3
search index --like abc
search index query -k 0
search index query --where foo=1
search index query --where id=
search index query --false-positives 2
search few query --false-positives 0.1
fit cold.txt -m wordllama --transform whitening -o out
search index query --group de
search index small.npy
search index vectors.npy --hybrid
search index query --rerank
cluster vectors.npy -m model
duplicates small.npy -m model
duplicates vectors.npy --texts two.txt
duplicates nan.npy
duplicates cut.npy --texts texts.txt
duplicates texts.txt -m model --false-positives 0.9
cluster texts.txt -m model --clusters 100000
cluster texts.txt -m model --clusters 0
cluster texts.txt -m model --clusters foo
train foo --data pairs.csv -o out
train ranking --data table.csv -o out
train classification --data nli.csv -o out
train classification --data nli.csv -o out --classes a
train classification --data coded.csv -o out
train regression --data scored.csv -o out
train regression --data same.csv -o out
train regression --data scored.csv -o out --score-range x
train regression --data scored.csv -o out --score-range 5,0
{TRAIN} --batch-size 0
{TRAIN} --batch-size x
{TRAIN} --epochs 0
{TRAIN} --learning-rate -1
{TRAIN} --seed 99999999999
{TRAIN} --seeds 0
{TRAIN} --set foo=1
{TRAIN} --set warmup
{TRAIN} --set warmup=2
{TRAIN} --set matryoshka=0
{TRAIN} --set mini_batch=0
{TRAIN} --set recompute=maybe
{TRAIN} --columns a
{TRAIN} --dev nli.csv
{TRAIN} --transform pca
distill words:glove.txt texts.txt -o out
calibrate texts.txt -m model -o out --columns a,b
calibrate table.csv -m model -o out --columns text,text,label
calibrate two.txt -m model -o out
quantize small.npy -m model -o out
export model --to foo -o out
export model --to faiss?index=Foo -o out
export model --to faiss?map=maybe -o out
export model --to faiss -o out --vectors small.npy
export model --to faiss -o out --vectors vectors.npy --ids id
export model --to sentence-transformers?tei=true -o out
export model --to numpy --results other/model.json -o out
moments nan.npy -o out.safetensors
moments vectors.npy small.npy -o out.safetensors
words convert bad.txt -o out.safetensors
words convert glove.txt -o out.safetensors --vocabulary cold.txt
serve nowhere
serve model --api-key-file nowhere.txt
serve model --api-key-file two.txt
serve model --port 99999999
proxy --upstream foo
{PROXY} --dialect openai -m model
{PROXY} --dialect openai --upstream-model m --cache x?mb=0
evaluate sts --data nowhere
evaluate sts --data folder
evaluate foo --data folder
evaluate sts --data folder --fit-on foo
evaluate sts --data folder --split foo
evaluate sts --data folder --dims 9999
evaluate pairs --data scored.csv
evaluate pairs --data same.csv
evaluate pairs --data table.csv
evaluate MR --data scored.csv
evaluate retrieval --data folder
evaluate rte --data folder
compare other/model.json other/model.json
compare two.txt -m model -m words:glove.txt
migrate vectors.npy small.npy two.txt
report other/model.json -o out.html
drift vectors.npy small.npy
drift two.txt two.txt
data get foo -o out
data overlap texts.txt --data folder --tasks STSX
research reproduce nothing --data folder
research study foo --data folder
research study dims?widths=a --data folder -m model
research study dims?widths=8,300 --data folder -m model
research study dims?docs=-1 --data folder -m model
research study dims --data folder --transform l2_normalize -m model
research study layers --data folder -m model
""".strip().splitlines()

# files where one array or column of several must be chosen
SEVERAL = """
inspect two.safetensors
fit two.safetensors -o x
fit vectors.npy --queries two.safetensors --dims 2 -o x
transform two.safetensors -m model -o x.npy
info two.safetensors
index two.safetensors -o x
index add index two.safetensors
index create vectors.npy --texts two.csv -o x
search index two.safetensors
search index two.csv
search index --against two.safetensors
duplicates two.safetensors
cluster two.csv
map two.safetensors -o x.html
calibrate two.csv -o x
quantize two.safetensors -o x
moments two.csv -m model -o x.safetensors
export model --to faiss --vectors two.safetensors -o x
compare two.csv -m model -m wordllama
migrate vectors.npy vectors.npy two.csv
drift two.safetensors vectors.npy
""".strip().splitlines()
ALONE = """
evaluate STSB --data folder -m two.safetensors
migrate two.safetensors vectors.npy texts.txt
migrate vectors.npy two.safetensors texts.txt
train ranking --data pairs.csv --fit-on two.csv --transform whitening -o x
""".strip().splitlines()

# snake_case, CamelCase and built-in names, unless they belong to the name of a file
PYTHON = re.compile(
    r"(?<![\w./-])(?:[A-Za-z]+\d?(?:_\w+)+|[A-Z]+[a-z]+[A-Z]\w+|None|True|False|str|tuple|ndarray|Path|np\.\w+|\w+Error"
    r"|(?:Whitening|Truncate|Calibration|Moments|Quantization|Chance|SIF|GEM):|Errno|kwargs|dtype\(|[a-z]+=[\"'(\[])(?![\w/]|-[0-9a-f]{8}|\.(?:txt|csv|tsv|json|xml|safetensors|label)\b)"
)
# what is typed in the shell (transforms, options and their values, settings) or stands in files, and a few proper names
SHELL = {*TRANSFORMS, *OPTIONS, *["p_mean", "pca_cor", "zca_cor", "l2_normalize", "not_entailment", "LanceDB"]}
SHELL |= {field.name for field in fields(TrainingSettings)}
SHELL |= {"sentence_1", "sentence_2", "sentence_a", "sentence_b", "similarity_score", "max_length"}  # columns, scratch:


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files with one mistake each, and a model and an index."""
    folder = tmp_path_factory.mktemp("wrong")
    files = {
        "texts.txt": "\n".join(TEXTS),
        "two.txt": "a cat\na dog\n",
        "cold.txt": "ice\n",
        "empty.txt": "",
        "bad.txt": "man 1 2 3\ndog 2 1\n",
        "glove.txt": "".join(f"{word} {' '.join(map(str, row))}\n" for word, row in zip(WORDS, VECTORS, strict=False)),
        "table.csv": "text,label\n" + "".join(f"{text},{i % 2}\n" for i, text in enumerate(TEXTS)),
        "pairs.csv": "anchor,positive\na cat,a dog\na man,a woman\n",
        "nli.csv": "premise,hypothesis,label\nx one,y two,entailment\nx,y,maybe\n",
        "coded.csv": "premise,hypothesis,label\nx one,y two,0\nx,y,1\n",
        "scored.csv": "sentence1,sentence2,score\nx one,y two,1\nx,y,high\n",
        "same.csv": "sentence1,sentence2,score\nx one,y two,1\nx,y,1\n",
        "two.csv": "first,second\na cat,a dog\na man,a woman\n",
        "bad.jsonl": '{"text": "a"}\n{"text": \n',
        "number.jsonl": '{"text": "a"}\n{"text": 5}\n',
    }
    for name, content in files.items():
        (folder / name).write_text(content)
    (folder / "latin1.txt").write_bytes(b"caf\xe9\n")
    (folder / "damaged.safetensors").write_bytes(b"\xff" * 99)
    save_file({"a": VECTORS, "b": VECTORS}, folder / "two.safetensors")
    nan = VECTORS.copy()
    nan[3, 4] = np.nan
    arrays = {"vectors": VECTORS, "small": VECTORS[:, :5], "nan": nan, "zero": 0 * VECTORS, "row": VECTORS[0]}
    for name, array in (arrays | {"objects": np.array([None]), "strings": np.array([["a"]])}).items():
        np.save(folder / f"{name}.npy", array, allow_pickle=True)
    (folder / "cut.npy").write_bytes((folder / "vectors.npy").read_bytes()[:-5])
    model = isosent.load(f"words:{folder / 'glove.txt'}").fitted(TEXTS, transform=isosent.Whitening())
    model.save(folder / "model")
    Index.create(TEXTS, model, folder=folder / "index")
    Index.create(TEXTS[:4], model, folder=folder / "few")
    for name in ("folder", "other"):
        (folder / name).mkdir()
    (folder / "other" / "model.json").write_text("{}")
    for name, damage in (("cut", lambda path: path.write_text("{")), ("lacking", lambda path: None)):
        shutil.copytree(folder / "model", folder / name)
        damage(folder / name / "model.json")
    for path in (folder / "lacking").glob("*.safetensors"):
        path.unlink()
    return folder


def flags_of(words):
    """The options of a command, by the first words that are typed."""
    command, context = app, click.Context(app)
    for word in words[:2]:
        if isinstance(command, click.Group):
            command = command.get_command(context, word) or command.get_command(context, "create") or command
    return {flag for parameter in command.params for flag in parameter.opts}


def unknown_flags(words, message):
    """The options that a message names, which neither the command has nor one that the message names."""
    known = flags_of(words).union(
        *(flags_of(named.split()) for named in re.findall(r"isosent (\w+(?: \w+)?)", message))
    )
    return [flag for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]+", message) if flag not in {*known, *words, "--help"}]


@pytest.mark.parametrize(("lines", "advice"), [(SEVERAL, ": --column NAME"), (ALONE, ": a file of it alone")])
def test_one_of_several_columns_is_chosen_as_the_command_can(isosent_, folder, monkeypatch, lines, advice):
    monkeypatch.chdir(folder)
    wrong = {}
    for line in lines:
        words = line.split(" ")
        done = isosent_(*words)
        is_advised = re.search(rf"two\.(csv|safetensors) has .*{advice}", done.err)
        if done.code != 2 or unknown_flags(words, done.err) or not is_advised:
            wrong[line] = done.err
    assert wrong == {}


def test_no_message_names_anything_of_python(isosent_, folder, monkeypatch):
    monkeypatch.chdir(folder)
    wrong = []
    for line in WRONG:
        done = isosent_(*line.split(" "))
        message = done.err.rpartition("error: ")[2]
        options = {word[2:].replace("-", "_") for word in line.split() if word.startswith("--")}
        typed = options | {f"n_{name}" for name in options} | ({"n_components"} if "dims" in options else set())
        shell = SHELL - typed  # the option is named instead
        names = [name for name in PYTHON.findall(message) if name not in shell and name.strip("\"'([") not in line]
        names += unknown_flags(line.split(" "), message)
        if done.code != 2 or names:
            wrong.append(f"{line}: exit {done.code}, {names}: {message}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("fit texts.txt -m wordllama?weighting=sif&n_components=1 --dims 1000 -o x", "--dims 1000: choose 1 to 256"),
        (
            "fit texts.txt -m wordllama?weighting=sif&n_components=1 --transform whitening?n_components=999 -o x",
            "n_components=999: choose 1 to 256",
        ),
    ],
)
def test_of_two_options_of_one_name_the_wrong_one_is_named(isosent_, folder, monkeypatch, line, option):
    monkeypatch.chdir(folder)
    assert option in isosent_(*line.split(" ")).err


def test_a_file_that_is_named_like_a_function_is_named(isosent_, folder, monkeypatch):
    shutil.copy(folder / "nan.npy", folder / "folder" / "my_vectors.npy")
    monkeypatch.chdir(folder / "folder")
    assert "my_vectors.npy: row 3" in isosent_("fit", ".", "-o", "../x").err


def test_a_file_of_vectors_in_place_of_a_model_is_not_to_be_renamed(isosent_, folder, monkeypatch):
    monkeypatch.chdir(folder)
    message = isosent_("encode", "texts.txt", "-m", "vectors.npy", "-o", "x.npy").err
    assert "vectors.npy is an array" in message
    assert "Rename" not in message


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        ("evaluate sts --data folder -m wordllama -m words:glove.txt", "--model"),
        ("map texts.txt --model a -m b -o map.html", "--model"),
        ("encode texts.txt -o a.npy --output b.npy", "--output"),
        ("index create texts.txt -o a -m b --model=c", "--model"),
        ("data get sts --output a -o b", "--output"),
    ],
)
def test_an_option_with_one_value_is_given_once(command, flag, isosent_, refuses):
    refuses(isosent_(*command.split()), flag, "once")
