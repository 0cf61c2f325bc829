"""Every block of shell and of Python in the README and in the pages runs as written, and gives what the page shows.

A block that cannot run here stands behind ``<!-- not run: REASON -->``, which no reader sees; its commands must still
exist. A block of text right after another block is what that one prints; ``...`` stands for anything.
"""

import ast
import json
import os
import re
import shlex
import shutil
import sys
import tomllib
from contextlib import ExitStack
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO, TextIOWrapper
from pathlib import Path
from types import SimpleNamespace

import click
import numpy as np
import pytest
import yaml
from campaign.inputs import write_inputs, write_lines
from campaign.seeds import write_tasks
from vector_makers import write_vectors

import isosent
from isosent import search, training
from isosent.cli.main import app, main
from isosent.demo import demo_pool, write_texts

ROOT = Path(__file__).parents[2]
SKILL = ROOT / "skills" / "isosent" / "SKILL.md"
PAGES = {path.stem: path for path in [ROOT / "README.md", SKILL, *sorted((ROOT / "docs").glob("*.md"))]}
STUDIES = {f"research/{path.stem}": path for path in sorted((ROOT / "docs" / "research").glob("*.md"))}
SLOW = {"better", "command_line", "distill", "evaluation", "export", "layers", "migrate", "models", "pairs", "scale"}
SLOW |= {"training", "transformers", "tutorial", "vectors", "word_vectors"}
BUNDLED = {
    "README",
    "languages",
    "quickstart",
    "tutorial",
}  # on texts that readers have: all output is that of the block before
DEEP = {"transformers"}  # names the twelfth layer
NOT_RUN = r"<!-- not run: (?P<reason>[^\n]{10,}) -->\n+"
BLOCK = re.compile(rf"(?:^{NOT_RUN})?^```(?P<language>\w*)\n(?P<code>.*?)^```\n(?P<gap>\n*)", re.DOTALL | re.MULTILINE)
# what stands for a reader's own, and models of the hub, by what stands in here
STAND_INS = {
    r"hf:(FOLDER|MODEL|bert-base-uncased|intfloat/e5-base-v2)": "hf:{transformer}",
    r"sentence-transformers/all-MiniLM-L6-v2": "{transformer}",
    r"(?<=words:)FILE\b|\bglove\.[\w.]*(txt|zip)": "words.txt",
    r"\bMODEL\b": "wordllama",
    r"\bDIR\b": "tasks",
    r"\bINDEX\b": "index",
    r"\bFOLDER\b": "new-folder",
    r"--workers \d+": "--workers 2",
}
SHELL = ("bash", "console")


def blocks_of(path):
    return list(BLOCK.finditer(path.read_text("utf-8")))


def commands_of(code):
    """Words of each command, without the comment."""
    for line in code.replace("\\\n", " ").splitlines():
        if words := shlex.split(line.removeprefix("$ "), comments=True):
            yield words


@pytest.mark.parametrize("name", [*PAGES, *STUDIES])
def test_every_command_and_its_options_exist(name):
    """Also of blocks that are not run."""
    for block in blocks_of((PAGES | STUDIES)[name]):
        for words in commands_of(block["code"]) if block["language"] in SHELL else ():
            if words.pop(0) == "isosent":
                command, context = app, click.Context(app)
                while isinstance(command, click.Group):
                    is_named = command.get_command(context, words[0]) is not None
                    command = command.get_command(context, words.pop(0) if is_named else "create")
                options = words[: words.index("<")] if "<" in words else words
                command.make_parser(click.Context(command)).parse_args(options)


def test_few_blocks_are_not_run_and_each_for_a_reason():
    marked = [block["reason"] for path in PAGES.values() for block in blocks_of(path) if block["reason"]]
    assert len(marked) <= 40
    assert sum(path.read_text("utf-8").count("not run:") for path in PAGES.values()) == len(marked)


def test_an_agent_can_find_the_skill():
    head, text = re.fullmatch(r"---\n(.*?)\n---\n(.*)", SKILL.read_text("utf-8"), re.DOTALL).groups()
    facts = yaml.safe_load(head)
    assert facts["name"] == SKILL.parent.name
    assert 0 < len(facts["description"]) <= 1024  # what agents read of all skills
    assert "Use when" in facts["description"]
    named = set(re.findall(r"https://isosent\.github\.io/isosent/(\w+)/", text))
    assert named
    assert named <= PAGES.keys()


def test_every_public_name_has_its_reference():
    pages = "".join(path.read_text("utf-8") for path in (ROOT / "docs" / "api").glob("*.md"))
    documented = set(re.findall(r"^::: ([\w.]+)$", pages, re.MULTILINE))
    listed = {f"{module.__name__}.{name}" for module in (isosent, search, training) for name in module.__all__}
    assert listed - documented == {"isosent.IsosentError", "isosent.IsosentWarning"}  # on the page of errors
    assert {name for name in documented if name != resolved(name)} == set()


def test_names_in_the_pages_are_where_the_pages_say():
    """Names of Python, without those of code that is not run and of attributes of files and connections."""
    named = {
        name
        for path in PAGES.values()
        for name in re.findall(r"`(isosent(?:\.[a-zA-Z_]\w*)+)[`(]", path.read_text("utf-8"))
    }
    assert {name for name in named if name != resolved(name)} <= {f"isosent.{name}" for name in STORED}


STORED = ("fingerprint", "reference", "space", "normalize", "json")  # in files, and settings of PostgreSQL


def resolved(name):
    """The name, as far as it can be followed."""
    parts = name.split(".")
    place, value = 1, isosent
    while place < len(parts):
        inner = ".".join(parts[: place + 1])
        value = getattr(value, parts[place], None) or (find_spec(inner) and import_module(inner))
        if value is None:
            break
        place += 1
    return ".".join(parts[:place])


@pytest.fixture(scope="module")
def readers_folder(tmp_path_factory, wordllama):
    """What pages call texts.txt, vectors.npy, DIR and so on, all made of the texts of the demo."""
    folder = tmp_path_factory.mktemp("pages") / "reader"
    write_inputs(folder)
    (folder / "texts.txt").unlink()
    write_texts(folder)
    texts, pool = isosent.demo_texts(), demo_pool()
    (folder / "data").rename(folder / "tasks")
    write_tasks(folder / "tasks", texts)
    (folder / "tasks" / "MR").mkdir()
    for part in ("pos", "neg"):
        shutil.copy(folder / "tasks" / "CR" / f"custrev.{part}", folder / "tasks" / "MR" / f"rt-polarity.{part}")
    labeled = [f'"{text}",{row % 2}' for row, text in enumerate(texts[:80])]
    for name in ("tasks/Topics/train.csv", "tasks/Topics/test.csv", "tasks/Groups/test.csv", "titles.csv"):
        (folder / name).parent.mkdir(exist_ok=True)
        write_lines(folder / name, ["title,queue" if name == "titles.csv" else "text,label", *labeled])
    (folder / "KorSTS").mkdir()
    pairs = list(zip(texts[:40], texts[1:41], range(40), strict=True))
    write_lines(folder / "stsb-de-test.csv", [f'"{first}","{second}",{score % 6}' for first, second, score in pairs])
    listed = [{"sentence1": a, "sentence2": b, "labels": {"real-label": score % 6}} for a, b, score in pairs]
    (folder / "klue-sts-v1.1_dev.json").write_text(json.dumps(listed))
    lines = [f"{a}\t{b}\t{score % 6}" for a, b, score in pairs]
    write_lines(folder / "KorSTS" / "sts-test.tsv", ["sentence1\tsentence2\tscore", *lines])
    (folder / "data").symlink_to(os.environ.get("ISOSENT_DATA", folder / "tasks"))
    for part in ("train", "dev", "test"):
        shutil.copy(folder / "tasks" / f"sts-{part}.csv", folder)
    vectors = wordllama.encode(texts)
    for names, part in {
        "vectors original old corpus million": slice(None),
        "questions queries february june may new test": slice(240),
        "documents january train": slice(240, None),
    }.items():
        for name in names.split():
            write_lines(folder / f"{name}.txt", texts[part])
            np.save(folder / f"{name}.npy", vectors[part])
            write_vectors(folder / f"{name}.parquet", vectors[part], texts[part])
    (folder / "vectors.json").write_text(str(vectors.tolist()))
    rows = [f"{row % 6}\t{texts[row]}\t{texts[row + 1 + row % 2]}" for row in range(60)]
    write_lines(folder / "pairs.tsv", ["score\tsentence1\tsentence2", *rows])
    for name in ("snli", "multinli"):
        shutil.copy(folder / "nli.jsonl", folder / f"{name}.jsonl")
    words = sorted({word for text in texts for word in re.findall(r"\w+", text.lower())})
    write_lines(folder / "vocabulary.txt", words)
    write_lines(folder / "counts.txt", [f"{word} {1 + rank}" for rank, word in enumerate(words)])
    rows = zip(words, wordllama.encode(words).round(4).tolist(), strict=True)
    write_lines(folder / "words.txt", [f"{word} {' '.join(map(str, row))}" for word, row in rows])
    (folder / "texts").mkdir()
    write_lines(folder / "texts" / "part.txt", texts)
    columns, rows = "id,text,year,price,lang,added,two words", list(enumerate(texts))
    for name, n_rows in {"corpus": 480, "documents": 480, "tickets": 480, "more": 9, "part": 9}.items():
        lines = (f'{i},"{text}",{2000 + i % 25},{i % 160},en,2024-03-{1 + i % 30:02},n' for i, text in rows[:n_rows])
        write_lines(folder / f"{name}.csv", [columns, *lines])
    by_meaning = {(row.lang, row.meaning): row.text for row in pool}
    translations = [
        f'"{text}","{by_meaning["en", key]}",{lang},en' for (lang, key), text in by_meaning.items() if lang != "en"
    ]
    write_lines(folder / "pairs.csv", ["query,document,query_lang,document_lang", *translations])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for command in ("fit corpus.txt --dims 128 -o my-model", "index corpus.csv -o index"):
            app.main(command.split(), standalone_mode=False)
    shutil.copytree(folder / "my-model", folder / "model")
    return folder


class Reader:
    """Follows a page."""

    def __init__(self, names, transformer, capsys, monkeypatch, start):
        self._names, self._transformer, self._port = names, transformer, 8000
        self._capsys, self._monkeypatch, self._start = capsys, monkeypatch, start
        monkeypatch.setattr("isosent.server.serve", self._serve)

    def follow(self, block):
        """Run a block; what it prints."""
        code = block["code"].replace("127.0.0.1:8000", f"127.0.0.1:{self._port}")
        for pattern, stand_in in STAND_INS.items():
            code = re.sub(pattern, stand_in.format(transformer=self._transformer), code)
        if block["language"] == "python":
            return "".join(self._statements(code))
        return "".join(printed for words in commands_of(code) for printed in self._command(words))

    def _command(self, words):
        program, *arguments = words
        if program == "cd":
            self._monkeypatch.chdir(arguments[0])
        elif program == "pip":
            extras = re.findall(r"\[([\w,]+)\]", " ".join(arguments))
            assert set(",".join(extras).split(",")) <= EXTRAS | {""}
        elif program == "curl":
            self._curl(arguments)
        else:
            assert program == "isosent", program
            if "<" in arguments:
                text = Path(arguments.pop()).read_bytes()
                arguments.pop()
                self._monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(text), encoding="utf-8"))
            self._monkeypatch.setattr(sys, "argv", ["isosent", *arguments])
            with pytest.raises(SystemExit) as stop:
                main()
            out, err = self._capsys.readouterr()
            assert not stop.value.code, f"{shlex.join(words)}\n{err}"
            return out, err
        return self._capsys.readouterr()

    def _serve(self, application, **_):
        self._port = self._start(application)

    def _curl(self, arguments):
        import httpx

        places = {flag: arguments[place + 1] for place, flag in enumerate(arguments) if flag in ("-H", "-d")}
        headers = dict([places["-H"].split(": ")]) if "-H" in places else {}
        method = "POST" if "-d" in places else "GET"
        answer = httpx.request(method, f"http://{arguments[0]}", headers=headers, content=places.get("-d"))
        assert answer.status_code == 200, answer.text
        sys.stdout.write(answer.text)

    def _statements(self, code):
        """Run each; what it prints. A comment beside an expression may be its value, and below print its output."""
        lines = code.splitlines()
        for node in ast.parse(code).body:
            beside = lines[node.end_lineno - 1].encode()[node.end_col_offset :].decode().strip(" #")
            below = lines[node.end_lineno] if node.end_lineno < len(lines) else ""
            value = None
            if isinstance(node, ast.Expr):
                value = eval(compile(ast.Expression(node.value), lines[node.lineno - 1], "eval"), self._names)
            else:
                exec(compile(ast.Module([node], []), lines[node.lineno - 1], "exec"), self._names)
            printed = self._capsys.readouterr().out
            if ast.unparse(node).startswith("print("):
                value = literal_of(printed)
                if below.startswith("# "):
                    check_output(below.removeprefix("# "), printed)
            if value is not None and literal_of(beside) is not None:
                check_value(beside, value)
            yield printed


def literal_of(text):
    """The value of the literal that a text begins with, up to a colon or a semicolon; or None."""
    try:
        return ast.literal_eval(re.split(r"[:;]", text)[0].strip())
    except (SyntaxError, ValueError):
        return None


def check_value(shown, value):
    expected = literal_of(shown)
    if isinstance(expected, str):
        assert value == expected
    else:
        n_decimals = max((len(part) for part in re.findall(r"\.(\d+)", shown)), default=0)
        np.testing.assert_allclose(value, expected, atol=0.51 * 10**-n_decimals if n_decimals else 0)


def check_output(shown, printed):
    """Whatever the width of the terminal, and the lines of tables."""
    shown_words, printed_words = (re.sub("[\u2500-\u257f]", " ", text).split() for text in (shown, printed))
    pattern = ".*?".join(map(re.escape, " ".join(shown_words).split("...")))
    if not re.search(pattern, " ".join(printed_words)):
        pytest.fail(f"the page shows\n{shown}\nbut this is printed:\n{printed}", pytrace=False)


EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"])


@pytest.fixture(scope="module")
def transformer(tmp_path_factory):
    """As wide as those of the pages, with the words of the demo, by the number of its layers."""
    import tiny_models
    from tokenizers import pre_tokenizers, trainers

    tokenizer = tiny_models.words_tokenizer()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special_tokens = tiny_models.SPECIAL
    tokenizer.train_from_iterator(isosent.demo_texts(), trainers.WordLevelTrainer(special_tokens=special_tokens))
    changes = {"hidden_size": 384, "max_position_embeddings": 128}

    @cache
    def transformer(n_layers):
        folder = tmp_path_factory.mktemp("bert")
        return tiny_models.save_model(folder, "bert", tokenizer, changes=changes, n_layers=n_layers)

    return transformer


@pytest.mark.filterwarnings("ignore::isosent.errors.IsosentWarning")  # there are few texts
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in PAGES]
)
def test_the_page_runs_as_written(name, readers_folder, transformer, tmp_path, capsys, monkeypatch, running, wordllama):
    shutil.copytree(readers_folder, tmp_path / "folder", symlinks=True)
    monkeypatch.chdir(tmp_path / "folder")
    if name == "embedding_api":  # of nobody else's texts
        monkeypatch.setenv("ISOSENT_CACHE", str(tmp_path / "cache"))
    texts, pool = isosent.demo_texts(), demo_pool()
    vectors = wordllama.encode(texts)
    names = {
        "texts": texts,
        "queries": texts[:240],
        "new_texts": texts[:240],
        "old_texts": texts[240:],
        "documents": texts[240:],
        "languages": [row.lang for row in pool],
        "labels": [len(text) > 40 for text in texts],
        "vectors": vectors,
        "rows": vectors,
        "parts": np.array_split(vectors, 3),
        "ids": [f"t{row}" for row in range(len(texts))],
        "table": {"year": [2000 + row % 25 for row in range(len(texts))]},
        "api": SimpleNamespace(embed=wordllama.encode),
    }
    printed, end = None, 0
    with ExitStack() as servers:
        network = transformer(12 if name in DEEP else 2)
        reader = Reader(names, network, capsys, monkeypatch, lambda app: servers.enter_context(running(app)))
        for block in blocks_of(PAGES[name]):
            if block["language"] in (*SHELL, "python"):
                printed = None if block["reason"] else reader.follow(block)
            elif block["language"] in ("text", ""):
                if printed is not None and (block.start() == end or name in BUNDLED) and not block["reason"]:
                    check_output(block["code"], printed)
                printed = None
            end = block.end()
