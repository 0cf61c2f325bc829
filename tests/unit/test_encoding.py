import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from vector_makers import write_vectors

import isosent
from isosent.encoders.base import EncodingStats, collecting_stats, report
from isosent.encoders.precomputed import PrecomputedVectors
from isosent.errors import (
    FileFormatError,
    InputError,
    InputFileError,
    OutputError,
    TruncationWarning,
    UnknownWordsWarning,
)
from isosent.io.atomic import _host, locked
from isosent.io.shards import LOCK_FILE, Sharding, read_index
from isosent.io.texts import CountedTexts, open_texts
from isosent.io.vectors import holds_vectors, open_vectors
from isosent.jobs import encode as encoding
from isosent.jobs import shards
from isosent.jobs.encode import encode_file
from isosent.jobs.moments import moments_of
from isosent.model import SentenceEncoder
from isosent.space import Space
from isosent.transforms.whitening import Whitening

N_TEXTS = 53
SHARDING = Sharding(shard_size=20)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Eight texts a block."""
    monkeypatch.setattr(encoding, "WINDOW", 8)
    monkeypatch.setattr(encoding, "_MOST_WINDOWS", 1)


@pytest.fixture(scope="module")
def listed(texts):
    listed = list(texts[:N_TEXTS])
    listed[30] = listed[50] = ""
    return listed


@pytest.fixture
def lines(tmp_path, listed):
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in listed), "utf-8")
    return path


@pytest.fixture
def source(lines):
    with open_texts(lines) as source:
        yield source


def encode_folder(model, source, folder, **settings):
    """As `encode_file`; gives what it gives."""
    index = shards.encode_folder(model, [source.name], folder, **settings)
    return index.dim, EncodingStats(**index.counts)


def n_written(index):
    return index.n_shards - len(index.missing)


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


class Encoding:
    """A model that counts the texts it encodes, and can stop after some calls."""

    def __init__(self, model, stop_after=None):
        self.model, self.record = model, model.record
        self.fingerprint, self.space = model.fingerprint, model.space
        self.encoder, self.groups = model.encoder, model.groups
        self.n_encoded, self.n_calls, self.stop_after = 0, 0, stop_after

    def encode(self, texts, **options):
        self.n_calls += bool(texts)
        self.n_encoded += len(texts)
        if self.n_calls == self.stop_after:
            raise KeyboardInterrupt
        return self.model.encode(texts, **options)


@pytest.mark.parametrize("name", ["v.npy", "v.fvecs", "v.parquet"])
def test_a_file_holds_what_one_call_gives_to_the_last_bit(source, wordllama, listed, tmp_path, name, progress):
    dim, stats = encode_file(wordllama, source, tmp_path / name, progress=progress)
    expected = wordllama.encode(listed)
    np.testing.assert_array_equal(np.concatenate(list(open_vectors(tmp_path / name).blocks())), expected)
    assert open_vectors(tmp_path / name).space == Space(wordllama.fingerprint, "wordllama")
    assert (dim, stats.n_texts, stats.n_zero_rows) == (256, N_TEXTS, 2)
    assert progress.complete() == [N_TEXTS]


def test_an_array_has_the_bytes_that_writing_all_at_once_gives(source, wordllama, listed, tmp_path):
    space = Space(wordllama.fingerprint, wordllama.record.name)
    encode_file(wordllama, source, tmp_path / "v.npy")
    write_vectors(tmp_path / "w.npy", wordllama.encode(listed), listed, space)
    for ending in (".npy", ".npy.isosent.json"):
        assert (tmp_path / f"v{ending}").read_bytes() == (tmp_path / f"w{ending}").read_bytes()


def test_a_table_holds_the_texts_beside_their_vectors(source, wordllama, listed, tmp_path, monkeypatch):
    pq = pytest.importorskip("pyarrow.parquet")
    encode_file(wordllama, source, tmp_path / "v.parquet")
    with pq.ParquetFile(tmp_path / "v.parquet") as table:
        assert table.read(["text"])["text"].to_pylist() == listed
    monkeypatch.setattr(encoding, "WINDOW", 8192)
    encode_file(wordllama, source, tmp_path / "one.parquet")
    write_vectors(tmp_path / "w.parquet", wordllama.encode(listed), listed, Space(wordllama.fingerprint, "wordllama"))
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "w.parquet").read_bytes()


def test_numbers_are_stored_in_half_the_space(source, wordllama, listed, tmp_path):
    encode_file(wordllama, source, tmp_path / "v.npy", dtype="float16")
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), wordllama.encode(listed).astype(np.float16))


def test_a_number_too_large_for_float16_names_its_text(tmp_path):
    (tmp_path / "glove.txt").write_text("man 1 2\ndog 1e5 3\n")
    (tmp_path / "t.txt").write_text("man\n" * 30 + "dog\n")
    model = isosent.load(f"words:{tmp_path / 'glove.txt'}")
    with open_texts(tmp_path / "t.txt") as source:
        with pytest.raises(OutputError, match=r"float16 cannot hold a number in row 30"):
            encode_file(model, source, tmp_path / "v.npy", dtype="float16")
        with pytest.raises(OutputError, match=r"in row 30: .*1 of 2 shards are complete and stay"):
            encode_folder(model, source, tmp_path / "out", sharding=Sharding(20, dtype="float16"))
    assert not (tmp_path / "v.npy").exists()


def test_queries_are_encoded_as_queries(source, wordllama, listed, tmp_path, texts):
    model = wordllama.fitted(texts[:300], transform=Whitening(8), queries=texts[300:400])
    encode_file(model, source, tmp_path / "q.npy", role="query")
    np.testing.assert_allclose(np.load(tmp_path / "q.npy"), model.encode_query(listed), atol=1e-5)
    assert np.abs(model.encode_query(listed) - model.encode(listed)).max() > 1e-3


def test_a_model_of_vectors_is_refused_before_anything_is_made(source, tmp_path):
    model = SentenceEncoder(PrecomputedVectors(4))
    for encode, name in ((encode_file, "v.npy"), (encode_folder, "out")):
        with pytest.raises(InputError, match="cannot encode texts"):
            encode(model, source, tmp_path / name)
        assert not (tmp_path / name).exists()


def test_no_text_gives_no_row(wordllama, tmp_path):
    source = CountedTexts("nothing", 0, "", lambda first_row=0: iter(()), None, lambda: True)
    for name in ("v.npy", "v.parquet"):
        assert encode_file(wordllama, source, tmp_path / name)[1] == EncodingStats()
    assert np.load(tmp_path / "v.npy").shape == (0, 256)


def test_a_file_that_is_changed_meanwhile_leaves_the_old_output(lines, wordllama, tmp_path):
    (tmp_path / "v.npy").write_bytes(b"old")
    with open_texts(lines) as source:
        with lines.open("a") as file:
            file.write("more\n")
        with pytest.raises(InputFileError, match="was changed"):
            encode_file(wordllama, source, tmp_path / "v.npy")
    assert (tmp_path / "v.npy").read_bytes() == b"old"


# What is counted


@pytest.fixture
def glove(tmp_path):
    (tmp_path / "glove.txt").write_text("man 1 2 3\ndog 2 1 5\n")
    return isosent.load(f"words:{tmp_path / 'glove.txt'}")


def test_unknown_tokens_are_counted_over_all_blocks_and_warned_of_once(glove, tmp_path):
    (tmp_path / "t.txt").write_text("man yak dog emu\n" * 40 + "emu\n")
    with open_texts(tmp_path / "t.txt") as source:
        for encode, output in ((encode_file, "v.npy"), (encode_folder, "out")):
            with pytest.warns(UnknownWordsWarning) as caught:
                encoded = encode(glove, source, tmp_path / output)
            assert encoded[1] == EncodingStats(n_texts=41, n_tokens=161, n_unknown=81, n_zero_rows=1)
            assert [str(warning.message) for warning in caught] == [
                f"81 of 161 tokens (50%) are unknown to words:{tmp_path / 'glove.txt'}."
            ]


def test_cut_texts_are_warned_of_once_with_the_number_of_all():
    with collecting_stats() as tallied, warnings.catch_warnings():
        warnings.simplefilter("error")
        report(EncodingStats(n_texts=3, n_cut=1), "a model", "5")
        report(EncodingStats(n_texts=4, n_cut=2), "a model", "5")
    words = r"^3 of 7 texts were cut at the encoder's maximum of 5 tokens\.$"
    with pytest.warns(TruncationWarning, match=words) as caught:
        tallied.total.warn("a model", "5")
    assert len(caught) == 1


def test_counting_ends_with_its_block(glove):
    with collecting_stats() as tallied, warnings.catch_warnings():
        warnings.simplefilter("error")
        glove.encode(["emu"] * 200)
    assert (tallied.total.n_texts, tallied.total.n_unknown) == (200, 200)
    with pytest.warns(UnknownWordsWarning) as caught:
        glove.encode(["emu"] * 200)
    assert tallied.total.n_texts == 200
    assert caught[0].filename.endswith("model.py")


# A folder of shards


@pytest.mark.parametrize("file_format", ["npy", "parquet"])
@pytest.mark.parametrize("shard_size", [1, 7, 20, N_TEXTS, 1000])
def test_shards_hold_what_one_call_gives_to_the_last_bit(source, wordllama, listed, tmp_path, file_format, shard_size):
    folder = tmp_path / "out"
    encode_folder(wordllama, source, folder, sharding=Sharding(shard_size, file_format))
    names = sorted(path.name for path in folder.glob(f"part-*.{file_format}"))
    assert names == [f"part-{i:05d}.{file_format}" for i in range(-(-N_TEXTS // shard_size))]
    shards = [open_vectors(folder / name) for name in names]
    assert {shard.space for shard in shards} == {Space(wordllama.fingerprint, "wordllama")}
    vectors = np.concatenate([block for shard in shards for block in shard.blocks()])
    np.testing.assert_array_equal(vectors, wordllama.encode(listed))


def test_the_rows_of_a_shard_are_an_argument(source, wordllama, tmp_path):
    encode_folder(wordllama, source, tmp_path / "out", sharding=Sharding(9, "parquet"), shard_size=50)
    assert len(list((tmp_path / "out").glob("part-*.parquet"))) == -(-N_TEXTS // 50)


def test_the_index_says_what_the_folder_holds(source, wordllama, tmp_path):
    encode_folder(wordllama, source, tmp_path / "out", sharding=SHARDING)
    document = json.loads((tmp_path / "out" / "shards.json").read_text("utf-8"))
    assert document["space"] == {"fingerprint": wordllama.fingerprint, "reference": "wordllama"}
    [file] = document["inputs"]
    assert (file["name"], file["n_rows"], file["sha256"]) == (source.name, N_TEXTS, source.sha256)
    assert document["sharding"] == {"shard_size": 20, "file_format": "npy", "dtype": "float32"}
    assert (document["dim"], document["is_complete"]) == (256, True)
    assert [shard["counts"]["n_texts"] for shard in document["shards"]] == [20, 20, 13]
    assert [shard["counts"]["n_zero_rows"] for shard in document["shards"]] == [0, 1, 1]
    sizes = [(tmp_path / "out" / f"part-0000{number}.npy").stat().st_size for number in range(3)]
    assert [shard["size_bytes"] for shard in document["shards"]] == sizes


@pytest.mark.parametrize("file_format", ["npy", "parquet"])
@pytest.mark.parametrize("start", [0, 1, 19, 20, 33, 52])
def test_a_folder_is_read_as_one_file(source, wordllama, listed, tmp_path, file_format, start):
    encode_folder(wordllama, source, tmp_path / "out", sharding=Sharding(20, file_format))
    assert holds_vectors(tmp_path / "out")
    opened = open_vectors(tmp_path / "out")
    assert (opened.n_rows, opened.dim, opened.storage) == (N_TEXTS, 256, "float32")
    assert opened.space == Space(wordllama.fingerprint, "wordllama")
    np.testing.assert_array_equal(np.concatenate(list(opened.blocks(start))), wordllama.encode(listed)[start:])
    assert [len(block) for block in opened.read(start, 9)][:-1] == [9] * ((N_TEXTS - start - 1) // 9)


def test_a_fit_on_a_folder_is_one_on_its_vectors(source, wordllama, listed, tmp_path):
    encode_folder(wordllama, source, tmp_path / "out", sharding=SHARDING)
    write_vectors(tmp_path / "v.npy", wordllama.encode(listed), listed)
    folder, file = (moments_of([open_vectors(tmp_path / name)]) for name in ("out", "v.npy"))
    np.testing.assert_array_equal(folder.moments.scatter, file.moments.scatter)
    assert folder.n_zero_rows == 2
    kept = moments_of([open_vectors(tmp_path / "out")], checkpoint=tmp_path / "kept")
    again = moments_of([open_vectors(tmp_path / "out")], checkpoint=tmp_path / "kept")
    np.testing.assert_array_equal(kept.moments.mean, again.moments.mean)


@pytest.mark.parametrize("file_format", ["npy", "parquet"])
@pytest.mark.parametrize("stop_after", range(1, 9))
def test_a_stopped_run_goes_on_to_the_same_bytes_without_a_finished_shard_twice(
    source, wordllama, tmp_path, stop_after, file_format, progress
):
    sharding = Sharding(20, file_format)
    encode_folder(wordllama, source, tmp_path / "whole", sharding=sharding)
    with pytest.raises(KeyboardInterrupt):
        encode_folder(Encoding(wordllama, stop_after), source, tmp_path / "out", sharding=sharding)
    n_before = (stop_after - 1) // 3
    assert n_written(read_index(tmp_path / "out")) == n_before == len(list((tmp_path / "out").glob(f"*.{file_format}")))
    again, seen, progress.resumes = Encoding(wordllama), [], n_before > 0
    encoded = encode_folder(again, source, tmp_path / "out", sharding=sharding, resumed=seen.append, progress=progress)
    assert again.n_encoded == N_TEXTS - 20 * n_before
    assert [n_written(index) for index in seen] == [n_before] * bool(n_before)
    assert progress.complete() == [N_TEXTS]
    assert encoded[1] == encode_file(wordllama, source, tmp_path / "v.npy")[1]
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_shard_that_the_index_does_not_know_yet_is_written_again(source, wordllama, tmp_path, monkeypatch):
    encode_folder(wordllama, source, tmp_path / "whole", sharding=SHARDING)

    def killed(folder, index):
        if n_written(index) >= 2:
            raise KeyboardInterrupt
        write_index(folder, index)

    write_index = shards.write_index
    monkeypatch.setattr(shards, "write_index", killed)
    with pytest.raises(KeyboardInterrupt):
        encode_folder(wordllama, source, tmp_path / "out", sharding=SHARDING)
    monkeypatch.undo()
    assert (tmp_path / "out" / "part-00001.npy").exists()
    assert encode_folder(wordllama, source, tmp_path / "out", sharding=SHARDING)[1].n_texts == N_TEXTS
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_what_a_killed_run_left_is_removed_and_nothing_else(source, wordllama, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    left = [
        f".shards.isosent-{_host()}-999999999-0123abcd.tmp.json",
        f".part-00000.isosent-{_host()}-999999999-0123abcd.tmp.npy",
        f".part-00000.npy.isosent-{_host()}-999999999-0123abcd.tmp.json",
        ".part-12345.isosent-89abcdef-1-0123abcd.tmp.parquet",  # of another machine
    ]
    for name in left:
        (folder / name).write_bytes(b"half")
    encode_folder(wordllama, source, folder, sharding=SHARDING)
    (folder / left[1]).write_bytes(b"half")
    (folder / "README.md").write_text("mine")
    encode_folder(wordllama, source, folder, sharding=SHARDING)
    assert not set(left) & set(contents(folder))
    assert (folder / "README.md").read_text() == "mine"


def test_a_finished_folder_encodes_nothing_and_tells_its_counts(source, wordllama, tmp_path):
    first = encode_folder(wordllama, source, tmp_path / "out", sharding=SHARDING)
    before, again, seen = contents(tmp_path / "out"), Encoding(wordllama), []
    assert encode_folder(again, source, tmp_path / "out", sharding=SHARDING, resumed=seen.append) == first
    assert (again.n_encoded, seen[0].is_complete) == (0, True)
    assert contents(tmp_path / "out") == before


def test_the_same_texts_in_another_file_go_on(source, wordllama, listed, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        encode_folder(Encoding(wordllama, 4), source, tmp_path / "out", sharding=SHARDING)
    (tmp_path / "moved.jsonl").write_text("".join(json.dumps({"id": 1, "text": text}) + "\n" for text in listed))
    with open_texts(tmp_path / "moved.jsonl", column="text") as moved:
        again = Encoding(wordllama)
        encode_folder(again, moved, tmp_path / "out", sharding=SHARDING, column="text")
    assert again.n_encoded == N_TEXTS - 20


@pytest.fixture
def begun(source, wordllama, tmp_path):
    """A folder with one of three shards."""
    with pytest.raises(KeyboardInterrupt):
        encode_folder(Encoding(wordllama, 4), source, tmp_path / "out", sharding=SHARDING)
    return tmp_path / "out"


def refused(error, words, *arguments, **settings):
    with pytest.raises(error, match=words):
        encode_folder(*arguments, **{"sharding": SHARDING} | settings)


def test_other_texts_are_refused(begun, lines, wordllama):
    before = contents(begun)
    lines.write_text(lines.read_text("utf-8") + "one more\n", "utf-8")
    with open_texts(lines) as source:
        words = r"out was begun with other inputs: 53 rows of .*texts\.txt then, 54 rows of .*texts\.txt now"
        refused(InputError, words, wordllama, source, begun)
    assert contents(begun) == before


def test_another_model_is_refused(begun, source, glove):
    refused(
        InputError, r"out holds vectors of the space wordllama .*; the model belongs to words:", glove, source, begun
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sharding": Sharding(21)}, r"shard_size=20, not shard_size=21"),
        ({"sharding": Sharding(20, "parquet")}, r"file_format=npy, not file_format=parquet"),
        ({"sharding": Sharding(20, dtype="float16")}, r"dtype=float32, not dtype=float16"),
        ({"role": "query"}, r"role=text, not role=query"),
    ],
)
def test_other_settings_are_refused(begun, source, wordllama, settings, words):
    refused(InputError, words, wordllama, source, begun, **settings)


def test_a_folder_with_something_else_is_refused(source, wordllama, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("years of work")
    refused(OutputError, r"out holds something else, such as", wordllama, source, tmp_path / "out")
    assert contents(tmp_path / "out") == {"thesis.txt": b"years of work"}


def test_a_file_in_the_place_of_the_folder_is_refused(source, wordllama, tmp_path):
    (tmp_path / "out").write_bytes(b"")
    refused(OutputError, r"out is a file", wordllama, source, tmp_path / "out")


def test_a_folder_nowhere_is_refused(source, wordllama, tmp_path):
    refused(OutputError, r"there is no folder .*nowhere", wordllama, source, tmp_path / "nowhere" / "out")


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"format": "other", "format_version": 1}', "\x00"])
def test_a_damaged_index_is_refused(begun, source, wordllama, content):
    (begun / "shards.json").write_text(content)
    refused(
        FileFormatError,
        r"shards\.json: ",
        wordllama,
        source,
        begun,
    )


def test_an_index_that_says_more_than_there_can_be_is_refused(begun, source, wordllama):
    document = json.loads((begun / "shards.json").read_text("utf-8"))
    del document["checksum"]
    (begun / "shards.json").write_text(json.dumps(document | {"shards": 4 * document["shards"][:1]}))
    refused(FileFormatError, r"lists 4 shards\. Expected 3\.", wordllama, source, begun)
    document["inputs"][0]["n_rows"] = 10**15  # a plan of so many shards would not fit in memory
    (begun / "shards.json").write_text(json.dumps(document))
    refused(FileFormatError, r"lists 3 shards\. Expected \d{10,}\.", wordllama, source, begun)


def test_a_shard_that_is_gone_or_damaged_is_made_again(begun, source, wordllama, tmp_path):
    encode_folder(wordllama, source, tmp_path / "whole", sharding=SHARDING)

    def flip(path):
        path.write_bytes(path.read_bytes()[:-4] + b"flip")

    for damage in (Path.unlink, lambda path: path.write_bytes(b"half"), flip):
        damage(begun / "part-00000.npy")
        again = Encoding(wordllama)
        encode_folder(again, source, begun, sharding=SHARDING)
        assert again.n_encoded in (N_TEXTS, 20)
        assert contents(begun) == contents(tmp_path / "whole")


def test_a_shard_that_was_replaced_is_refused_when_it_is_read(source, wordllama, listed, tmp_path):
    encode_folder(wordllama, source, tmp_path / "out", sharding=SHARDING)
    space = Space(wordllama.fingerprint, "wordllama")
    write_vectors(tmp_path / "out" / "part-00000.npy", wordllama.encode(listed[:19]), listed[:19], space)
    words = r"part-00000\.npy: expected 20 x 256 float32 of the space wordllama .*, found 19 x 256 float32"
    with pytest.raises(FileFormatError, match=words):
        open_vectors(tmp_path / "out")


def test_a_folder_that_another_process_writes_to_is_refused(begun, source, wordllama):
    pytest.importorskip("fcntl")
    (begun / LOCK_FILE).touch()
    with locked(begun / LOCK_FILE):
        refused(OutputError, r"out: another process or thread is writing to it", wordllama, source, begun)
    encode_folder(wordllama, source, begun, sharding=SHARDING)
    assert not (begun / LOCK_FILE).exists()


def test_a_folder_that_lacks_shards_cannot_be_read(begun):
    with pytest.raises(FileFormatError, match=r"out has only 1 of its 3 shards\. Run the same command"):
        open_vectors(begun)


def test_a_full_disk_keeps_whole_shards(begun, source, wordllama, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array_header_1_0", full)
    words = (
        r"part-00001\.npy could not be written: No space left on device\. 1 of 3 shards are complete and stay\. "
        r"Run the same command again to resume\."
    )
    refused(OutputError, words, wordllama, source, begun)
    monkeypatch.undo()
    assert encode_folder(wordllama, source, begun, sharding=SHARDING)[1].n_texts == N_TEXTS


def test_a_file_that_is_changed_meanwhile_ends_the_run_before_the_shard(lines, wordllama, tmp_path):
    def progress(done, total):
        with lines.open("a") as file:
            file.write("more\n")

    with open_texts(lines) as source, pytest.raises(InputFileError, match="was changed"):
        encode_folder(wordllama, source, tmp_path / "out", sharding=SHARDING, progress=progress)
    assert n_written(read_index(tmp_path / "out")) == 0


@pytest.mark.parametrize("shard_size", [0, -1, 2.5, True])
def test_a_size_of_shards_below_1_is_refused(shard_size):
    with pytest.raises(InputError, match=r"shard_size must be a whole number >= 1"):
        Sharding(shard_size)


def test_another_format_of_shards_is_refused():
    with pytest.raises(InputError, match=r"file_format must be one of npy, parquet; got 'fvecs'"):
        Sharding(file_format="fvecs")


def test_a_column_of_a_folder_is_refused(source, wordllama, tmp_path):
    encode_folder(wordllama, source, tmp_path / "out", sharding=SHARDING)
    with pytest.raises(InputError, match=r"out holds shards of vectors, which have no column 'text'"):
        open_vectors(tmp_path / "out", column="text")
