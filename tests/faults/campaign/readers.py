"""What isosent reads: every command with the files that it is given."""

from dataclasses import dataclass

from campaign import processes
from campaign.inputs import SCRATCH
from campaign.targets import TRAIN, WORDS

SMALL = f"{WORDS} --resamples 5"
TRANSFER = "evaluate transfer --data"
AGAIN = f"train classification --data nli.jsonl {TRAIN} --resume"


@dataclass(frozen=True, slots=True)
class Reader:
    """A command that reads.

    Parameters
    ----------
    name : str
        What it reads.
    command : str
        Its arguments; what it writes is called ``o`` with any ending.
    files : tuple of str
        Files to spoil, one at a time.
    share : float
        Share of the runs that this one gets: 1, or less where it is slow.
    modules : tuple of str
        What the command imports that takes long.
    """

    name: str
    command: str
    files: tuple[str, ...]
    share: float = 1
    modules: tuple[str, ...] = ()
    is_quick: bool = False


INDEXES = (
    ("flat", "float32", ("index-flat-float32/chance-000001.safetensors",)),
    ("flat", "float16", ()),
    ("flat", "int8", ("index-flat-int8/vectors-000001.faiss",)),
    ("flat", "binary", ()),
    ("flat", "product", ()),
    ("ivf", "float32", ()),
    ("ivf", "float16", ()),
    ("ivf", "int8", ("index-ivf-int8/rows-000001.parquet",)),
    ("ivf", "binary", ()),
    ("ivf", "product", ()),
    ("hnsw", "float32", ()),
    ("hnsw", "float16", ()),
    ("hnsw", "int8", ()),
)
_TORCH = ("torch", "transformers", "sentence_transformers")

READERS = (
    Reader("texts .txt", f"encode t.txt {WORDS} -o o.npy", ("t.txt",), is_quick=True),
    *(
        Reader(f"texts .{ending}", f"encode t.{ending} --column text {WORDS} -o o.npy", (f"t.{ending}",), is_quick=True)
        for ending in ("csv", "tsv", "jsonl", "parquet")
    ),
    *(
        Reader(f"vectors .{ending}", f"moments v.{ending} -o o.safetensors", (f"v.{ending}",), is_quick=True)
        for ending in ("npy", "fvecs", "safetensors", "parquet")
    ),
    Reader("vectors, note", "transform n.npy -m model -o o.npy", ("n.npy.isosent.json", "n.npy"), is_quick=True),
    Reader("shards", "moments shards -o o.safetensors", ("shards/shards.json", "shards/part-00000.npy"), is_quick=True),
    Reader("shards to go on with", f"encode texts.txt {WORDS} -o shards --shard-size 16", ("shards/shards.json",)),
    Reader("word vectors, text", "encode texts.txt -m words:words.txt -o o.npy", ("words.txt",), is_quick=True),
    Reader("word vectors, gz", "encode texts.txt -m words:w.gz -o o.npy", ("w.gz",)),
    Reader("word vectors, word2vec", "encode texts.txt -m words:w2v.bin -o o.npy", ("w2v.bin",), is_quick=True),
    Reader("word vectors, fastText", "encode texts.txt -m words:ft.bin -o o.npy", ("ft.bin",)),
    Reader(
        "word vectors, isosent", "encode texts.txt -m words:w.safetensors -o o.npy", ("w.safetensors",), is_quick=True
    ),
    Reader(
        "word counts",
        f"fit texts.txt {WORDS}?weighting=sif&frequencies=counts.txt --transform none -o o",
        ("counts.txt",),
    ),
    Reader("stop words", f"encode texts.txt {WORDS}?stop_words=stop.txt&vocabulary=stop.txt -o o.npy", ("stop.txt",)),
    Reader(
        "tokenizer.json",
        f"encode texts.txt {WORDS}?tokenizer=static/tokenizer.json -o o.npy",
        ("static/tokenizer.json",),
    ),
    Reader(
        "Model2Vec folder",
        "encode texts.txt -m static:static -o o.npy",
        ("static/config.json", "static/tokenizer.json", "static/model.safetensors", "static/modules.json"),
        is_quick=True,
    ),
    Reader(
        "model folder", "encode texts.txt -m ./model -o o.npy", ("model/model.json", "model/linear_map"), is_quick=True
    ),
    Reader("model folder, SIF", "encode texts.txt -m ./sif -o o.npy", ("sif/model.json", "sif/corpus")),
    Reader("moments", "fit m.safetensors --transform whitening -o o", ("m.safetensors",)),
    Reader("moments checkpoint", "moments vectors.npy --checkpoint kept -o o.safetensors", ("kept",), is_quick=True),
    Reader(
        "index",
        "search index 'a man is playing' --hybrid --where 'id > 2' -k 3",
        (
            "index/manifest.json",
            "index/rows-000001.parquet",
            "index/keywords-000001.safetensors",
            "index/codes-000002.faiss",
            "index/deleted-000003.npy",
            "index/model/model.json",
        ),
    ),
    *(
        Reader(
            f"index, {kind} {store}",
            f"search index-{kind}-{store} --like 3 --like 5 -k 4",
            (f"index-{kind}-{store}/codes-000001.faiss", f"index-{kind}-{store}/codes-000001.faiss", *files),
            is_quick=True,
        )
        for kind, store, files in INDEXES
    ),
    Reader("index without a text", "search index-hnsw-int8 --like 3", ("index-hnsw-int8/manifest.json",)),
    Reader(
        "shards .parquet",
        "moments parquet_shards -o o.safetensors",
        ("parquet_shards/part-00000.parquet",),
        is_quick=True,
    ),
    Reader(
        "model folder, quantization",
        "index texts.txt -m ./model --store int8 -o o",
        ("model/quantization", "model/quantization"),
    ),
    Reader("model folder, canary", "transform vectors.npy -m ./model -o o.npy", ("model/canary",)),
    Reader("exported index", "export ./model --to faiss -o o.faiss", ("model/linear_map",)),
    Reader("STS-B", f"evaluate sts --data data {SMALL}", ("data/sts-test.csv", "data/sts-dev.csv")),
    Reader(
        "STS12",
        f"evaluate STS12 --data sts {SMALL}",
        ("sts/STS12/STS.input.MSRpar.txt", "sts/STS12/STS.gs.MSRpar.txt"),
    ),
    Reader(
        "SICK",
        f"evaluate sts --data sick {SMALL} --sickr test",
        ("sick/SICK_test_annotated.txt", "sick/SICK_train.txt"),
    ),
    Reader("scored pairs", f"evaluate pairs --data pairs.tsv {SMALL}", ("pairs.tsv",), is_quick=True),
    Reader("SentEval: CR", f"{TRANSFER} CR {SMALL}", ("CR/custrev.pos",), 0.5),
    Reader("SentEval: TREC", f"{TRANSFER} TREC {SMALL}", ("TREC/train_5500.label", "TREC/TREC_10.label"), 0.5),
    Reader("SentEval: MRPC", f"{TRANSFER} MRPC {SMALL}", ("MRPC/msr_paraphrase_train.txt",), 0.5),
    Reader("CQA", f"evaluate cqa --data cqa {SMALL}", ("cqa/SemEval2016-Task3-CQA-QL-dev.xml",), is_quick=True),
    Reader("RTE", f"evaluate rte --data RTE {SMALL}", ("RTE/train.tsv", "RTE/dev.tsv")),
    Reader(
        "BEIR",
        f"evaluate retrieval --data beir {SMALL}",
        ("beir/corpus.jsonl", "beir/queries.jsonl", "beir/qrels/test.tsv"),
        is_quick=True,
    ),
    Reader("result", "compare a.json b.json --resamples 20", ("a.json", "b.json")),
    Reader("result, report", "report a.json -o o.html", ("a.json",)),
    Reader("study", "report study.json -o o.html", ("study.json",), is_quick=True),
    Reader("paper", "research reproduce paper.yaml --data data --models map.yaml", ("paper.yaml", "map.yaml")),
    Reader("data lock", "data get biosses -o fetched --from hub", ("fetched/isosent-data.json",)),
    Reader("fetched data", "data get biosses -o o --from hub", ("hub/mteb/biosses-sts/test.jsonl.gz",)),
    Reader(
        "metrics",
        "report run.training/metrics.jsonl -o o.html",
        ("run.training/metrics.jsonl",),
        modules=processes.HEAVY,
    ),
    Reader(
        "training to go on with",
        AGAIN,
        tuple(
            f"out.training/{name}"
            for name in (
                "run.json",
                "metrics.jsonl",
                "checkpoint-4/rest.json",
                "checkpoint-4/trainer_state.json",
                "checkpoint-4/weights.safetensors",
                "checkpoint-4/optimizer.safetensors",
                "checkpoint-4/random.safetensors",
            )
        ),
        0.3,
        processes.HEAVY,
    ),
    Reader(
        "NLI",
        f"train classification --data nli.jsonl --base '{SCRATCH}' --batch-size 16 -o o",
        ("nli.jsonl",),
        0.3,
        processes.HEAVY,
    ),
    Reader(
        "transformer",
        "encode texts.txt -m hf:bert -o o.npy",
        ("bert/config.json", "bert/tokenizer.json", "bert/tokenizer_config.json", "bert/model.safetensors"),
        modules=_TORCH,
    ),
    Reader(
        "sentence-transformers folder",
        "encode texts.txt -m hf:labse -o o.npy",
        (
            "labse/modules.json",
            "labse/1_Pooling/config.json",
            "labse/2_Dense/config.json",
            "labse/2_Dense/model.safetensors",
            "labse/sentence_bert_config.json",
        ),
        modules=_TORCH,
    ),
    Reader(
        "trained folder",
        "encode texts.txt -m ./trained -o o.npy",
        ("trained/model.json", "trained/encoder/modules.json"),
        modules=processes.HEAVY,
    ),
    Reader(
        "trained folder, record",
        AGAIN.replace("-o out", "-o trained"),
        ("trained/training.json",),
        0.1,
        processes.HEAVY,
    ),
)
