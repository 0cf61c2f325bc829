"""One valid file for each reader, to be spoilt."""

import gzip
import json
import shlex
import shutil
import struct
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from campaign import processes
from campaign.inputs import DIM, write_inputs, write_lines
from campaign.readers import INDEXES, SMALL
from campaign.targets import TRAIN, WORDS, interrupted_training, succeed


def write_seeds(folder: Path, *, is_heavy: bool) -> None:
    """One valid file for each reader."""
    from safetensors.numpy import save_file

    write_inputs(folder)
    texts = (folder / "texts.txt").read_text().splitlines()[:12]
    rows = np.load(folder / "vectors.npy")
    write_lines(folder / "t.txt", texts)
    write_lines(folder / "t.csv", ["id,text", *(f'{i},"{text}"' for i, text in enumerate(texts))])
    write_lines(folder / "t.tsv", ["id\ttext", *(f"{i}\t{text}" for i, text in enumerate(texts))])
    write_lines(folder / "t.jsonl", [json.dumps({"id": i, "text": text}) for i, text in enumerate(texts)])
    pq.write_table(pa.table({"text": texts}), folder / "t.parquet")
    np.save(folder / "v.npy", rows)
    np.save(folder / "many.npy", np.random.default_rng(1).standard_normal((1000, DIM)).astype(np.float32))
    (folder / "v.fvecs").write_bytes(b"".join(struct.pack("<i", DIM) + row.tobytes() for row in rows))
    save_file({"vectors": rows}, folder / "v.safetensors")
    pq.write_table(
        pa.table({"vector": pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), DIM)}), folder / "v.parquet"
    )
    words = (folder / "words.txt").read_text()
    (folder / "w.gz").write_bytes(gzip.compress(words.encode(), mtime=0))
    listed = [line.split()[0] for line in words.splitlines()]
    table = np.random.default_rng(0).standard_normal((len(listed), DIM)).astype(np.float32)
    packed = b"".join(word.encode() + b" " + row.tobytes() + b"\n" for word, row in zip(listed, table, strict=True))
    (folder / "w2v.bin").write_bytes(f"{len(listed)} {DIM}\n".encode() + packed)
    shutil.copy(Path(__file__).parents[2] / "golden" / "fasttext_tiny.bin", folder / "ft.bin")
    write_lines(folder / "counts.txt", [f"{word} {i + 1}" for i, word in enumerate(listed)])
    write_lines(folder / "stop.txt", listed[:100])
    _write_static(folder / "static", listed, table)
    write_tasks(folder, (folder / "texts.txt").read_text().splitlines())
    (folder / "paper.yaml").write_text(_PAPER)
    (folder / "map.yaml").write_text("here: words:words.txt\n")
    for line in (
        f"fit texts.txt {WORDS} --dims 4 -o model",
        f"fit texts.txt {WORDS}?weighting=sif --transform none -o sif",
        f"encode texts.txt {WORDS} -o n.npy",
        f"encode texts.txt {WORDS} -o shards --shard-size 16",
        f"index t.csv --column text {WORDS} -o index",
        "index add index t.csv --column text",
        "index remove index 3",
        *(f"index many.npy --kind {kind} --store {store} -o index-{kind}-{store}" for kind, store, _ in INDEXES),
        f"encode texts.txt {WORDS} -o parquet_shards --shard-size 16 --format parquet",
        "calibrate texts.txt -m ./model",
        "quantize texts.txt -m ./model",
        "words convert words.txt -o w.safetensors",
        "moments vectors.npy --checkpoint kept -o m.safetensors",
        f"evaluate sts --data data {SMALL} -o a.json",
        "evaluate sts --data data -m words:other_words.txt --resamples 5 -o b.json",
        f"research study dims?widths=2,4&docs=0 --data data {WORDS} -o study.json",
        "data get biosses -o fetched --from hub",
    ):
        succeed(shlex.split(line), folder)
    if is_heavy:
        processes.forked(partial(_write_transformers, folder))
        succeed(shlex.split(f"train classification --data nli.jsonl {TRAIN.replace('-o out', '-o trained')}"), folder)
        interrupted_training(folder)
        shutil.copytree(folder / "out.training", folder / "run.training")
    shutil.rmtree(folder / "cache", ignore_errors=True)
    shutil.copytree(folder, folder.with_name("originals"))


def _write_static(folder: Path, words: list[str], table: np.ndarray) -> None:

    folder.mkdir()
    tokenizer = Tokenizer(
        models.WordLevel({"[UNK]": 0} | {word: i + 1 for i, word in enumerate(words)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    save_file({"embeddings": np.vstack([table[:1], table])}, folder / "model.safetensors")
    (folder / "config.json").write_text(
        json.dumps({"model_type": "model2vec", "normalize": True, "seq_length": 100, "hidden_dim": DIM})
    )
    place = "sentence_transformers.models."
    modules = [
        {"idx": 0, "name": "0", "path": ".", "type": f"{place}StaticEmbedding"},
        {"idx": 1, "name": "1", "path": "1_Normalize", "type": f"{place}Normalize"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))


def write_tasks(folder: Path, texts: list[str]) -> None:
    """A file or two of every task."""
    for name in ("sts/STS12", "sick", "CR", "TREC", "MRPC", "cqa", "RTE", "beir/qrels"):
        (folder / name).mkdir(parents=True)
    for name in ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"):
        write_lines(folder / f"sts/STS12/STS.input.{name}.txt", [f"{texts[i]}\t{texts[i + 1]}" for i in range(8)])
        write_lines(folder / f"sts/STS12/STS.gs.{name}.txt", [i % 5 + 0.5 for i in range(8)])
    for part in ("train", "trial", "test_annotated"):
        rows = [f"{i}\t{texts[i]}\t{texts[i + 1]}\t{i % 5 + 1}\t{('NEUTRAL', 'ENTAILMENT')[i % 2]}" for i in range(15)]
        write_lines(
            folder / f"sick/SICK_{part}.txt",
            ["pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment", *rows],
        )
    for start, part in enumerate(("pos", "neg")):
        write_lines(folder / f"CR/custrev.{part}", texts[start::2])
    kinds = ("DESC:manner", "ENTY:cremat", "NUM:count")
    for part in ("train_5500", "TREC_10"):
        write_lines(
            folder / f"TREC/{part}.label", [f"{kinds[i % 3]} {text}" for i, text in enumerate(texts + texts[::-1])]
        )
    for part in ("train", "test"):
        rows = [f"{i % 2}\t{i}\t{i + 1}\t{texts[i]}\t{texts[i + 1]}" for i in range(30)]
        write_lines(
            folder / f"MRPC/msr_paraphrase_{part}.txt", ["\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String", *rows]
        )
        rows = [f"{i}\t{texts[i]}\t{texts[i + 1]}\t{('entailment', 'not_entailment')[i % 2]}" for i in range(20)]
        write_lines(
            folder / f"RTE/{'dev' if part == 'test' else part}.tsv", ["index\tsentence1\tsentence2\tlabel", *rows]
        )
    items = [
        f'<OrgQuestion ORGQ_ID="Q{i}"><OrgQSubject>{texts[i]}</OrgQSubject><OrgQBody>{texts[i + 1]}</OrgQBody>'
        f'<Thread><RelQuestion RELQ_ID="Q{i}_R{rank}" RELQ_RANKING_ORDER="{rank}" RELQ_RELEVANCE2ORGQ='
        f'"{("Relevant", "Irrelevant")[rank % 2]}"><RelQSubject>{texts[rank]}</RelQSubject>'
        f"<RelQBody>{texts[rank + 9]}</RelQBody></RelQuestion></Thread></OrgQuestion>"
        for i in range(3)
        for rank in range(1, 5)
    ]
    write_lines(
        folder / "cqa/SemEval2016-Task3-CQA-QL-dev.xml",
        ['<?xml version="1.0" encoding="utf-8"?>', "<xml>", *items, "</xml>"],
    )
    write_lines(
        folder / "beir/corpus.jsonl",
        [json.dumps({"_id": f"d{i}", "title": "", "text": text}) for i, text in enumerate(texts[:15])],
    )
    write_lines(
        folder / "beir/queries.jsonl",
        [json.dumps({"_id": f"q{i}", "text": text}) for i, text in enumerate(texts[20:25])],
    )
    write_lines(
        folder / "beir/qrels/test.tsv", ["query-id\tcorpus-id\tscore", *(f"q{i}\td{2 * i}\t1" for i in range(5))]
    )


def _write_transformers(folder: Path) -> None:
    import tiny_models

    tiny_models.save_model(folder / "bert", "bert")
    tiny_models.save_labse(folder / "labse")


_PAPER = """name: T
title: Tiny
citation: Nobody 2000
tables:
  - name: table 1
    title: Two rows
    source: made up
    family: sts
    columns: [STSB]
    metric: spearman
    conditions:
      - {label: mean, model: here, published: [50]}
      - {label: elsewhere, model: bert-base-uncased, options: {layers: "-1"}, published: [60]}
"""
