"""Getting data: from a folder laid out like the hub, and from a hub on this machine."""

import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from threading import Thread

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isosent.datasets import CONVERSIONS, RECORD_NAME, HuggingFaceHub, Mirror, get_data, parse_manifest, read_manifest
from isosent.errors import FileFormatError, InputError, InputFileError, InputTypeError, OutputError
from isosent.evaluation.rte import rte_tasks
from isosent.evaluation.sts import TASKS, read_scored_pairs, read_sts
from isosent.evaluation.transfer import TRANSFER_TASKS, read_transfer

PIN = "a" * 40
FACTS = dict.fromkeys(("title", "command", "download", "terms"), "") | {
    "text": "as they are",
    "home": "its page",
    "place": "a.txt and b.txt",
}
MANIFEST = read_manifest()


def packed(**members):
    """An archive of texts."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name, text in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return written.getvalue()


def json_lines(rows):
    return gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode())


def parquet(**columns):
    written = io.BytesIO()
    pq.write_table(pa.table(columns), written)
    return written.getvalue()


@pytest.fixture
def mirror(tmp_path):
    """A folder like the hub, and a way to put files into it."""

    def put(**files):
        (tmp_path / "hub").mkdir(exist_ok=True)
        for name, content in files.items():
            path = tmp_path / "hub" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return Mirror(tmp_path / "hub")

    return put


def toy(*files, revision=PIN, **facts):
    """A manifest of one set."""
    entries = [{"repository": "owner/toy", **file} for file in files]
    return parse_manifest(
        {"repositories": {"owner/toy": revision}, "sets": [{"name": "toy", **FACTS, **facts, "files": entries}]}
    )


TWO = toy({"path": "toy/a.txt", "file": "a.txt"}, {"path": "toy/b.txt", "file": "b.txt"})


def get_toy(manifest, folder, **settings):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("isosent.datasets.read_manifest", lambda: manifest)
        return get_data(["toy"], folder, **settings)


class Counted:
    """A hub that tells what was asked of it, and fails after some files."""

    def __init__(self, hub, newest="", n_files=None):
        self.hub, self.newest, self.n_files, self.asked = hub, newest, n_files, []

    def commit(self, repository, wanted):
        return wanted or self.newest

    def fetch(self, repository, revision, file):
        if len(self.asked) == self.n_files:
            raise InputFileError("the hub did not give it: Connection refused")
        self.asked.append((revision, file))
        return self.hub.fetch(repository, revision, file)


def written_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


# ----------------------------------------------------------------------------------------------- the manifest


def test_commits_are_whole_or_said_to_be_unknown():
    assert all(pin is None or re.fullmatch("[0-9a-f]{40}", pin) for pin in MANIFEST.revisions.values())


def test_every_file_has_a_place_of_its_own_below_the_folder_and_a_known_source():
    files = [file for each in MANIFEST.sets.values() for file in each.files]
    assert len({file.path for file in files}) == len(files)
    for file in files:
        assert not PurePosixPath(file.path).is_absolute()
        assert ".." not in PurePosixPath(file.path).parts
        assert (file.repository in MANIFEST.revisions and file.file) or not file.repository
        assert file.how in CONVERSIONS
        assert all(total is None or re.fullmatch("[0-9a-f]{64}", total) for total in (file.sha256, file.original))


def test_sets_that_include_others_bring_them():
    assert [each.name for each in MANIFEST.select(["senteval", "STS"])] == ["senteval", "stsb", "sick", "sts"]


@pytest.mark.parametrize(
    ("names", "error", "words"),
    [
        (["kor"], InputError, r"no set 'kor'\. Did you mean korsts\? There are sts, "),
        ([], InputError, r"no set is named\. There are sts, "),
        ("sts", InputTypeError, r"got one string\. Pass \['sts'\]"),
    ],
)
def test_names_that_are_not_there_are_refused_with_the_nearest(names, error, words):
    with pytest.raises(error, match=words):
        MANIFEST.select(names)


# ----------------------------------------------------------------------------------------------- the layout


def content_of(file):
    """Any content of a file of the hub, of the form that it has there."""
    if file.how == "stsb":
        return json_lines([{"score": i + 0.2, "sentence1": f"Man {i}.", "sentence2": "Men."} for i in range(3)])
    if file.how == "rte":
        labels = [-1, -1] if "test" in file.file else [0, 1]
        return parquet(sentence1=["a", "b"], sentence2=["c", "d"], label=labels, idx=[0, 1])
    if file.path.endswith(".parquet"):
        score = [0.5, 1.0, 3.0]
        named = {"klue/klue": {"labels": [{"label": one} for one in score]}, "PhilipMay/stsb_multi_mt": None}
        score_column = named.get(file.repository, {"score": score}) or {"similarity_score": score}
        return parquet(sentence1=["a", "b", "c"], sentence2=["d", "e", "f"], **score_column)
    if file.path.endswith("biosses.jsonl"):
        return json_lines([{"sentence1": f"{i}", "sentence2": "b", "score": i} for i in range(3)])
    return gzip.compress(b"any") if file.file.endswith(".gz") else b"any"


def text_of(member):
    """Lines of a member of the archive, in the form of its task."""
    name = PurePosixPath(member).name
    if name.startswith("STS.input"):
        return "A man.\tMen.\nRain.\tSnow.\n"
    if name.startswith("STS.gs"):
        return "1\n2\n"
    if name.startswith("SICK"):
        header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
        return header + "1\ta\tb\t1\tNEUTRAL\n2\tc\td\t5\tENTAILMENT\n"
    if name.startswith("msr"):
        return "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t1\t2\ta\tb\n0\t3\t4\tc\td\n"
    if name.endswith(".label"):
        return "DESC:def What ?\nHUM:ind Who ?\n"
    if name.startswith("sentiment"):
        return "good\t1\nbad\t0\n" if "binary" in member else "1 good\n0 bad\n"
    return "one\ntwo\n"


@pytest.fixture
def everything(mirror, tmp_path):
    """All sets that the hub has, out of a mirror of made-up content."""
    archives = {}
    for file in (file for each in MANIFEST.sets.values() for file in each.files if file.repository):
        if file.member:
            archives.setdefault(f"{file.repository}/{file.file}", {})[file.member] = text_of(file.member)
        else:
            mirror(**{f"{file.repository}/{file.file}": content_of(file)})
    hub = mirror(**{name: packed(**members) for name, members in archives.items()})
    got = get_data([name for name, each in MANIFEST.sets.items() if each.repositories], tmp_path / "data", hub=hub)
    assert len(got) == sum(len(each.files) for each in MANIFEST.sets.values() if each.repositories)
    return tmp_path / "data"


def test_the_readers_find_every_set_where_it_was_put(everything):
    assert [task.name for task in read_sts(everything)] == list(TASKS)
    assert [task.name for task in read_transfer(everything)] == list(TRANSFER_TASKS)
    assert rte_tasks(everything)[0].target_texts[-4:] == ["a", "c", "b", "d"]
    pairs = ["biosses/biosses.jsonl", "korsts/korsts-test.parquet", "kluests/klue-sts-dev.parquet"]
    assert [len(read_scored_pairs(everything / name).first) for name in (*pairs, "stsb-multi/stsb-zh.parquet")] == [
        3
    ] * 4
    assert {"corpus.jsonl", "queries.jsonl", "qrels"} == {path.name for path in (everything / "scifact").iterdir()}


def test_scores_are_written_as_they_were_before_they_were_floats(mirror, tmp_path):
    row = {"score": 3.799999952316284, "sentence1": 'He said "no.', "sentence2": "Ja\u2028nein."}
    manifest = toy({"path": "sts-test.csv", "file": "test.jsonl.gz", "how": "stsb"})
    get_toy(manifest, tmp_path, hub=mirror(**{"owner/toy/test.jsonl.gz": json_lines([row])}))
    assert (tmp_path / "sts-test.csv").read_text("utf-8") == '\t\t\t\t3.8\tHe said "no.\tJa\u2028nein.\n'


@pytest.mark.data
def test_real_tables_become_the_original_files_again(mirror, tmp_path):
    """RTE and the STS benchmark, turned into what the hub has of them and back: the sums are those of the manifest."""
    if "ISOSENT_DATA" not in os.environ:
        pytest.skip("ISOSENT_DATA does not say where the research sets lie")
    root = Path(os.environ["ISOSENT_DATA"])
    for file in MANIFEST.sets["rte"].files:
        rows = [line.split("\t") for line in (root / file.path).read_text("utf-8").removesuffix("\n").split("\n")[1:]]
        labels = [["entailment", "not_entailment"].index(row[3]) if len(row) > 3 else -1 for row in rows]
        first, second, idx = [row[1] for row in rows], [row[2] for row in rows], [int(row[0]) for row in rows]
        table = parquet(sentence1=first, sentence2=second, label=labels, idx=idx)
        mirror(**{f"{file.repository}/{file.file}": table})
    for file in MANIFEST.sets["stsb"].files:
        rows = [line.split("\t") for line in (root / file.path).read_text("utf-8").removesuffix("\n").split("\n")]
        table = [{"score": float(row[4]), "sentence1": row[5], "sentence2": row[6]} for row in rows]
        hub = mirror(**{f"{file.repository}/{file.file}": json_lines(table)})
    assert all(file.original for file in get_data(["rte", "stsb"], tmp_path / "data", hub=hub))


# ----------------------------------------------------------------------------------------------- what is there


def test_a_second_call_fetches_nothing(mirror, tmp_path):
    hub = Counted(mirror(**{"owner/toy/a.txt": b"a", "owner/toy/b.txt": b"b"}))
    first, second = (get_toy(TWO, tmp_path / "data", hub=hub) for _ in range(2))
    assert [file.was_there for file in first + second] == [False, False, True, True]
    assert len(hub.asked) == 2


def test_a_call_that_was_cut_off_keeps_what_is_whole_and_is_taken_up(mirror, tmp_path):
    files = mirror(**{"owner/toy/a.txt": b"a", "owner/toy/b.txt": b"b"})
    with pytest.raises(InputFileError, match="toy could not be fetched: the hub did not give it: Connection refused"):
        get_toy(TWO, tmp_path / "data", hub=Counted(files, n_files=1))
    assert written_below(tmp_path / "data") == [RECORD_NAME, "toy/a.txt"]
    again = Counted(files)
    assert [file.was_there for file in get_toy(TWO, tmp_path / "data", hub=again)] == [True, False]
    assert again.asked == [(PIN, "b.txt")]


def test_without_the_hub_it_is_said_what_to_place_where(tmp_path):
    hub = Counted(None, n_files=0)
    words = (
        rf"place a\.txt and b\.txt, below {re.escape(str(tmp_path))}, as on its page; or bring the hub's data files "
        r"owner/toy/a\.txt, owner/toy/b\.txt from elsewhere.* mirror='FOLDER'"
    )
    with pytest.raises(InputFileError, match=words):
        get_toy(TWO, tmp_path, hub=hub)
    assert written_below(tmp_path) == []


def test_what_the_hub_does_not_have_is_placed_by_hand_and_then_known(tmp_path):
    manifest = toy({"path": "toy/a.xml", "repository": "", "original": hashlib.sha256(b"a").hexdigest()})
    with pytest.raises(InputFileError, match=r"not on the hub, and .*a\.xml is not there\. Place a\.txt and b\.txt"):
        get_toy(manifest, tmp_path)
    (tmp_path / "toy").mkdir()
    for content, original in ((b"a", True), (b"b", False)):
        (tmp_path / "toy" / "a.xml").write_bytes(content)
        assert get_toy(manifest, tmp_path)[0].original is original


def test_an_original_that_was_placed_by_hand_is_taken(mirror, tmp_path):
    manifest = toy({"path": "a.txt", "file": "a.txt", "original": hashlib.sha256(b"a").hexdigest()})
    (tmp_path / "a.txt").write_bytes(b"a")
    (got,) = get_toy(manifest, tmp_path, hub=mirror())
    assert (got.was_there, got.original) == (True, True)


def test_an_altered_text_is_told(mirror, tmp_path):
    manifest = toy({"path": "a.txt", "file": "a.txt", "original": hashlib.sha256(b"A").hexdigest()})
    (got,) = get_toy(manifest, tmp_path, hub=mirror(**{"owner/toy/a.txt": b"a"}))
    assert got.original is False


@pytest.mark.parametrize(("before", "why"), [(True, "has changed since"), (False, f"is not listed in {RECORD_NAME}")])
def test_a_file_of_someone_else_is_never_replaced(mirror, tmp_path, before, why):
    hub = mirror(**{"owner/toy/a.txt": b"a", "owner/toy/b.txt": b"b"})
    if before:
        get_toy(TWO, tmp_path / "data", hub=hub)
    (tmp_path / "data" / "toy").mkdir(parents=True, exist_ok=True)
    (tmp_path / "data" / "toy" / "a.txt").write_bytes(b"mine")
    with pytest.raises(OutputError, match=f"a.txt {why}"):
        get_toy(TWO, tmp_path / "data", hub=hub)
    assert (tmp_path / "data" / "toy" / "a.txt").read_bytes() == b"mine"


def test_a_folder_that_cannot_be_made_is_refused(mirror, tmp_path):
    (tmp_path / "data").write_text("a file")
    with pytest.raises(OutputError, match="data could not be created: File exists"):
        get_toy(TWO, tmp_path / "data", hub=mirror(**{"owner/toy/a.txt": b"a"}))


def test_a_mirror_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputFileError, match="no such folder"):
        Mirror(tmp_path / "nowhere")


# ----------------------------------------------------------------------------------------------- sums


def test_a_file_with_another_sum_than_the_manifest_holds_is_refused(mirror, tmp_path):
    manifest = toy({"path": "a.txt", "file": "a.txt", "sha256": hashlib.sha256(b"A").hexdigest()})
    with pytest.raises(FileFormatError, match=r"owner/toy/a\.txt: its SHA-256 is .* the manifest expects 559aead0"):
        get_toy(manifest, tmp_path / "data", hub=mirror(**{"owner/toy/a.txt": b"a"}))
    assert written_below(tmp_path / "data") == []


def test_the_first_commit_and_sum_that_were_seen_hold_for_later_calls(mirror, tmp_path):
    manifest = toy({"path": "a.txt", "file": "a.txt"}, revision=None)
    files = mirror(**{"owner/toy/a.txt": b"a"})
    (got,) = get_toy(manifest, tmp_path / "data", hub=Counted(files, newest="first"))
    assert not got.is_pinned
    lock = json.loads((tmp_path / "data" / RECORD_NAME).read_text())
    digest = hashlib.sha256(b"a").hexdigest()
    assert lock["repositories"] == {"owner/toy": {"revision": "first", "files": {"a.txt": digest}}}
    (tmp_path / "data" / "a.txt").unlink()
    later = Counted(files, newest="second")
    get_toy(manifest, tmp_path / "data", hub=later)
    assert later.asked == [("first", "a.txt")]
    (tmp_path / "data" / "a.txt").unlink()
    mirror(**{"owner/toy/a.txt": b"another"})
    with pytest.raises(FileFormatError, match=rf"but {RECORD_NAME} expects ca978112"):
        get_toy(manifest, tmp_path / "data", hub=later)
    assert written_below(tmp_path / "data") == [RECORD_NAME]


def test_another_pinned_commit_starts_anew(mirror, tmp_path):
    for pin, content in ((PIN, b"a"), ("b" * 40, b"b")):
        manifest = toy({"path": f"{pin}.txt", "file": "a.txt"}, revision=pin)
        hub = Counted(mirror(**{"owner/toy/a.txt": content}))
        assert get_toy(manifest, tmp_path / "data", hub=hub)[0].is_pinned


def test_a_damaged_lock_is_refused(mirror, tmp_path):
    (tmp_path / RECORD_NAME).write_text('{"format": "isosent-data", "format_version": 7}')
    with pytest.raises(FileFormatError, match=r"isosent-data\.json: format version 7.*get the data again"):
        get_toy(TWO, tmp_path, hub=mirror(**{"owner/toy/a.txt": b"a"}))


@pytest.mark.parametrize(
    ("how", "content", "why"),
    [
        ("gunzip", b"no gzip", "Not a gzipped file"),
        ("gunzip", gzip.compress(b"abc" * 99)[:-20], "ended before"),
        ("member", b"no archive", "could not be opened"),
        ("member", packed(other="a"), "it lacks a/b"),
        ("stsb", json_lines([{"score": 1.0, "sentence1": "a"}]), "it lacks sentence2"),
        ("stsb", json_lines([{"score": 1.0, "sentence1": "a\tb", "sentence2": "c"}]), "free of tabs and line feeds"),
        ("stsb", json_lines([{"score": 1.0, "sentence1": "a\nb", "sentence2": "c"}]), "free of tabs and line feeds"),
        ("stsb", gzip.compress(b"{no json"), "Expecting property name"),
        ("rte", b"no table", "[Pp]arquet"),
        ("rte", parquet(sentence1=["a"], sentence2=["b"]), "it lacks label"),
        ("rte", parquet(sentence1=["a"], sentence2=["b"], label=[2], idx=[0]), "out of range"),
    ],
    ids=lambda value: value if isinstance(value, str) else "content",
)
def test_damaged_files_of_the_hub_are_refused_before_anything_is_written(mirror, tmp_path, how, content, why):
    manifest = toy({"path": "a.txt", "file": "a.bin", "how": how, "member": "a/b"})
    words = "cannot be converted to a.txt: .*" + why
    with pytest.raises(FileFormatError, match=words):
        get_toy(manifest, tmp_path / "data", hub=mirror(**{"owner/toy/a.bin": content}))
    assert written_below(tmp_path / "data") == []


# ----------------------------------------------------------------------------------------------- the real hub

BIOSSES = MANIFEST.sets["biosses"].files[0]
GET = "import sys; from isosent.datasets import get_data; [get_data(['biosses'], name) for name in sys.argv[1:]]"


def get_from(endpoint, cache, *folders):
    """Get data in a process of its own: the library of the hub reads its settings once."""
    settings = {"HF_ENDPOINT": endpoint, "HF_HOME": str(cache), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    command = [sys.executable, "-c", GET, *map(str, folders)]
    return subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=False)


@pytest.fixture
def served():
    """A hub on this machine with one file, and how often it gave that."""
    content, commit, given = content_of(BIOSSES), MANIFEST.revisions[BIOSSES.repository], []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path == f"/datasets/{BIOSSES.repository}/resolve/{commit}/{BIOSSES.file}":
                self.answer(200, content, {"ETag": '"0"', "X-Repo-Commit": commit})
            elif self.path.startswith(f"/api/datasets/{BIOSSES.repository}/revision/{commit}"):
                self.answer(200, json.dumps({"id": BIOSSES.repository, "sha": commit}).encode(), {})
            else:
                self.answer(404, b"", {"X-Error-Code": "RepoNotFound"})

        do_HEAD = do_GET  # noqa: N815

        def answer(self, code, body, headers):
            self.send_response(code)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)
                given.extend([self.path] * (body == content))

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", given
    server.shutdown()
    server.server_close()


def test_the_hub_gives_a_file_once_and_its_cache_ever_after(served, tmp_path):
    done = get_from(served[0], tmp_path / "cache", tmp_path / "first", tmp_path / "second")
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("first", "second"):
        assert (tmp_path / name / BIOSSES.path).read_bytes() == gzip.decompress(content_of(BIOSSES))
    assert len(served[1]) == 1


def test_a_hub_out_of_reach_is_told_at_once(tmp_path):
    done = get_from("http://127.0.0.1:9", tmp_path / "cache", tmp_path / "data")
    assert re.search(
        r"InputFileError: data: biosses could not be fetched: the hub did not give mteb/biosses-sts: .*"
        r"Connection refused.*\. Without network, .* mteb/biosses-sts/test\.jsonl\.gz .* mirror='FOLDER'\.\n$",
        done.stderr,
    )
    assert "Retrying" not in done.stderr
    assert written_below(tmp_path / "data") == []


def test_offline_mode_is_told(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InputFileError, match=r"the hub did not give owner/none: .*offline mode is enabled"):
        HuggingFaceHub().fetch("owner/none", PIN, "a.txt")
    with pytest.raises(InputFileError, match="the hub did not give owner/none"):
        HuggingFaceHub().commit("owner/none", None)
