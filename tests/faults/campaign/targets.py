"""What isosent writes: every command that leaves files, with its output and the way the output is read."""

import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from campaign import processes
from campaign.inputs import SCRATCH, write_inputs

Read = Callable[[], Any]

WORDS = "-m words:words.txt"
OTHER = "-m words:other_words.txt"
TRAIN = f"--base '{SCRATCH}' --batch-size 8 --learning-rate 0.01 --set checkpoint_every=2 -o out"


@dataclass(frozen=True, slots=True)
class Target:
    """A command that writes.

    Parameters
    ----------
    name : str
        For people.
    new : str
        Its arguments.
    output : str
        The file or folder that it writes.
    old : str
        Arguments that write another result to the same place; "" where nothing may be there.
    before : tuple of str
        Commands that make more inputs.
    read : callable, optional
        Reads the output in the working directory; returns values to compare. None where isosent does not read it.
    unfinished : str
        A regular expression for files that an interrupted run leaves on purpose, to go on from there.
    varies : str
        A regular expression for files that hold times, so that no two runs give the same.
    may_refuse : bool
        Whether a second writer at the same time is refused.
    modules : tuple of str
        What the command imports that takes long.
    """

    name: str
    new: str
    output: str
    old: str = ""
    before: tuple[str, ...] = ()
    read: Read | None = None
    unfinished: str = "(?!)"
    varies: str = "(?!)"
    may_refuse: bool = False
    modules: tuple[str, ...] = ()
    is_quick: bool = field(default=False)

    def arguments(self, folder: Path) -> list[str]:
        """Arguments of the run, or of the run that goes on where one was interrupted."""
        is_begun = (folder / f"{self.output}.training" / "run.json").exists()
        return shlex.split(self.new) + ["--resume"] * is_begun


# -- readers: each is called in the folder of the run ----------------------------------------------------------------


def vectors(path: str) -> Any:
    import numpy as np

    from isosent.io.vectors import open_vectors

    source = open_vectors(path)
    return np.concatenate(list(source.blocks())).tobytes(), source.storage, source.space and source.space.fingerprint


def model(path: str) -> Any:
    import isosent

    loaded = isosent.load(path)
    return loaded.encode(isosent.demo_texts()[:5]).tobytes(), loaded.fingerprint, repr(loaded.record.calibration)


def vector_model(path: str) -> Any:
    import numpy as np

    import isosent

    loaded = isosent.load(path)
    return loaded.transform(np.ones((2, loaded.record.encoder_dim), np.float32)).tobytes(), loaded.fingerprint


def words(path: str) -> Any:
    from isosent.words.word_vectors import read_word_vectors

    read = read_word_vectors([path])
    return list(read.vocabulary), read.vectors.tobytes(), read.content_hash


def moments(path: str) -> Any:
    from isosent.jobs.moments import read_moments

    read = read_moments(path)
    return read.moments.weight, read.moments.mean.tobytes(), read.moments.scatter.tobytes(), read.n_zero_rows


def checkpoint(path: str) -> Any:
    from isosent.io.vectors import open_vectors
    from isosent.jobs.moments import moments_of

    read = moments_of([open_vectors("vectors.npy")], checkpoint=path)
    return read.moments.weight, read.moments.mean.tobytes(), read.moments.scatter.tobytes()


def result(path: str) -> Any:
    import isosent

    read = isosent.read_result(path)
    return repr([read.model, {name: (task.scores, task.items) for name, task in read.tasks.items()}])


def study(path: str) -> Any:
    from isosent.research.study import read_study

    return repr(read_study(path))


def index(path: str) -> Any:
    import faiss

    import isosent
    from isosent.exports.faiss import read_index

    return faiss.serialize_index(read_index(path, isosent.load("model"))).tobytes()


def rows_of_index(path: str) -> Any:
    import isosent
    from isosent.search import Index

    opened = Index.open(path)
    rows = [row for batch in opened.batches() for row in batch.to_pylist()]
    hits = opened.search(isosent.demo_texts()[:3], k=4, hybrid=True)
    return sorted(map(repr, rows)), hits.to_arrow().drop_columns(["share"]).to_pylist()


def space(path: str) -> Any:
    from isosent.exports.check import read_space

    return read_space(path)


def fetched(path: str) -> Any:
    from isosent.datasets import Mirror, get_data, read_data_record

    folder = Path(path)
    if not (folder / "isosent-data.json").exists() or not (folder / "biosses").exists():
        raise FileNotFoundError(path)
    get_data(["biosses"], folder, hub=Mirror("hub"))
    return repr(read_data_record(folder))


def trained(path: str) -> Any:
    from isosent.training.metrics import read_metrics
    from isosent.training.record import read_training

    read_training(Path(path))
    # a loss is a mean since the last one, or since the run was resumed; the weights are the same to the last bit
    steps = [point.step for point in read_metrics(Path(path) / "metrics.jsonl").losses]
    return steps, *model(path)


def interrupted(output: str) -> Any:
    """All that a training goes on from."""
    import json

    from isosent.training.metrics import read_metrics
    from isosent.training.record import RunFolder

    folder = RunFolder(Path(output))
    kept = folder.resume({})
    kept.restore_random_state()
    facts = json.loads((folder.path / "run.json").read_text()), (kept.path / "trainer_state.json").read_text()
    return repr([facts, kept.weights(), kept.optimizer(), kept.scheduler(), read_metrics(folder.metrics)])


# -- the table -------------------------------------------------------------------------------------------------------

_FIT = (f"fit texts.txt {WORDS} --dims 6 -o model",)
_FITS = (*_FIT, f"fit other.txt {OTHER} --dims 4 -o other_model")
_RESULTS = tuple(
    f"evaluate sts --data data --resamples 20 {reference} -o {name}.json"
    for reference, name in ((WORDS, "a"), (OTHER, "b"))
)
_INDEX = ("faiss", "pyarrow.parquet")
_NOTE = r".*\.isosent\.json"  # on the way it describes the old file and the new one; reading tells whether it fits
_TORCH = ("torch", "transformers", "sentence_transformers")

TARGETS = (
    Target(
        "vectors .npy",
        f"encode texts.txt {WORDS} -o out.npy",
        "out.npy",
        f"encode other.txt {OTHER} -o out.npy",
        read=partial(vectors, "out.npy"),
        unfinished=_NOTE,
        is_quick=True,
    ),
    Target(
        "vectors .fvecs",
        f"encode texts.txt {WORDS} -o out.fvecs",
        "out.fvecs",
        f"encode other.txt {OTHER} -o out.fvecs",
        read=partial(vectors, "out.fvecs"),
        unfinished=_NOTE,
    ),
    Target(
        "vectors .parquet",
        f"encode texts.txt {WORDS} -o out.parquet",
        "out.parquet",
        f"encode other.txt {OTHER} -o out.parquet",
        read=partial(vectors, "out.parquet"),
    ),
    Target(
        "shards .npy",
        f"encode texts.txt {WORDS} -o out --shard-size 20",
        "out",
        read=partial(vectors, "out"),
        unfinished=r"out(/.*)?",
        may_refuse=True,
        is_quick=True,
    ),
    Target(
        "shards .parquet",
        f"encode texts.txt {WORDS} -o out --shard-size 20 --format parquet",
        "out",
        read=partial(vectors, "out"),
        unfinished=r"out(/.*)?",
        may_refuse=True,
    ),
    Target(
        "shards by workers",
        f"encode texts.txt other.txt {WORDS} -o out --shard-size 20 --workers 2",
        "out",
        read=partial(vectors, "out"),
        unfinished=r"out(/.*)?",
        may_refuse=True,
    ),
    Target(
        "model folder by shards",
        f"fit texts.txt {WORDS} --transform whitening --dims 6 -o out --workers 1",
        "out",
        f"fit other.txt {OTHER} --dims 4 -o out",
        read=partial(model, "./out"),
        unfinished=r"out\.shards(/.*)?",
        may_refuse=True,
    ),
    Target(
        "model folder",
        f"fit texts.txt {WORDS} --dims 6 -o out",
        "out",
        f"fit other.txt {OTHER} --dims 4 -o out",
        read=partial(model, "./out"),
        is_quick=True,
    ),
    Target(
        "model folder, SIF",
        f"fit texts.txt {WORDS}?weighting=sif --transform none -o out",
        "out",
        f"fit other.txt {OTHER}?weighting=usif --transform none -o out",
        read=partial(model, "./out"),
    ),
    Target(
        "model folder, flow",
        f"fit texts.txt {WORDS} --transform glow_flow?depth=1&n_epochs=1 -o out",
        "out",
        f"fit other.txt {WORDS} -o out",
        read=partial(model, "./out"),
        modules=("torch",),
    ),
    Target(
        "model folder, calibrated",
        f"calibrate texts.txt {WORDS} -o out",
        "out",
        f"calibrate other.txt {OTHER} -o out",
        read=partial(model, "./out"),
    ),
    Target(
        "model folder, checkpoint",
        "fit vectors.npy --checkpoint kept --dims 4 -o out",
        "out",
        "fit other_vectors.npy -o out",
        read=partial(vector_model, "./out"),
        unfinished="kept",
        may_refuse=True,
    ),
    Target(
        "moments",
        "moments vectors.npy -o out.safetensors",
        "out.safetensors",
        "moments other_vectors.npy -o out.safetensors",
        read=partial(moments, "out.safetensors"),
        is_quick=True,
    ),
    Target(
        "moments checkpoint",
        "moments vectors.npy --checkpoint kept -o out.safetensors",
        "out.safetensors",
        read=partial(moments, "out.safetensors"),
        unfinished="kept",
        may_refuse=True,
    ),
    Target(
        "transform .npy",
        "transform vectors.npy -m model -o out.npy",
        "out.npy",
        "transform other_vectors.npy -m model -o out.npy",
        _FIT,
        partial(vectors, "out.npy"),
        _NOTE,
    ),
    Target(
        "transform .parquet",
        "transform vectors.npy -m model -o out.parquet",
        "out.parquet",
        "transform other_vectors.npy -m model -o out.parquet",
        _FIT,
        partial(vectors, "out.parquet"),
    ),
    Target(
        "word vectors",
        "words convert words.txt -o out.safetensors",
        "out.safetensors",
        "words convert other_words.txt -o out.safetensors",
        read=partial(words, "out.safetensors"),
    ),
    Target(
        "index",
        f"index rows.csv {WORDS} --store int8 -o out",
        "out",
        f"index other.txt {OTHER} -o out",
        read=partial(rows_of_index, "out"),
        may_refuse=True,
        modules=_INDEX,
        is_quick=True,
    ),
    *(
        Target(
            f"index {name}",
            f"index {arguments}",
            "out",
            f"index rows.csv {WORDS} --store int8 -o out",
            read=partial(rows_of_index, "out"),
            unfinished=r"out/.*",
            varies=r"out/.*",  # names of files hold the number of the commit
            may_refuse=True,
            modules=_INDEX,
            is_quick=name == "add",
        )
        for name, arguments in (
            ("add", "add out more.csv"),
            ("remove", "remove out r3 r9 r40"),
            ("compact", "compact out"),
        )
    ),
    Target(
        "index migrate",
        "index migrate out --map map",
        "out",
        f"index rows.csv {WORDS} --store int8 -o out",
        ("migrate words:words.txt words:other_words.txt corpus.txt -o map",),
        read=partial(rows_of_index, "out"),
        may_refuse=True,
        modules=_INDEX,
    ),
    Target(
        "results",
        f"evaluate sts --data data --resamples 20 {WORDS} -o out.json",
        "out.json",
        f"evaluate sts --data data --resamples 20 {OTHER} -o out.json",
        read=partial(result, "out.json"),
        is_quick=True,
    ),
    Target(
        "comparison",
        "compare a.json b.json --resamples 50 -o out.json",
        "out.json",
        "compare b.json a.json --resamples 50 -o out.json",
        _RESULTS,
    ),
    Target("report page", "report a.json b.json -o out.html", "out.html", "report b.json -o out.html", _RESULTS),
    Target(
        "report figures",
        "report a.json b.json -o out.html --figures out",
        "out",
        before=_RESULTS,
        unfinished="out",
        modules=("matplotlib.pyplot",),
    ),
    Target(
        "inspection page",
        f"inspect texts.txt {WORDS} -o out.html",
        "out.html",
        f"inspect other.txt {OTHER} -o out.html",
    ),
    Target(
        "study",
        f"research study dims?widths=2,4&docs=0 --data data {WORDS} -o out.csv -o out.json -o out.svg",
        "out.json",
        f"research study dims?widths=2,6&docs=0 --data data {OTHER} -o out.csv -o out.json -o out.svg",
        read=partial(study, "out.json"),
    ),
    Target(
        "export numpy",
        "export model --to numpy -o out.safetensors",
        "out.safetensors",
        "export other_model --to numpy -o out.safetensors",
        _FITS,
    ),
    Target(
        "export faiss",
        "export model --to faiss --index HNSW4 -o out.faiss",
        "out.faiss",
        "export model --to faiss -o out.faiss",
        _FIT,
        partial(index, "out.faiss"),
        _NOTE,
        varies=_NOTE,
        modules=("faiss",),
    ),
    Target(
        "export sentence-transformers",
        "export model --to sentence-transformers -o out",
        "out",
        "export other_model --to sentence-transformers -o out",
        _FITS,
        partial(space, "out"),
        modules=_TORCH,
    ),
    Target(
        "export onnx",
        "export model --to onnx -o out",
        "out",
        "export other_model --to onnx -o out",
        _FITS,
        partial(space, "out"),
        modules=(*_TORCH, "onnx", "onnxruntime"),
    ),
    Target(
        "trained folder",
        f"train classification --data nli.jsonl {TRAIN}",
        "out",
        f"train classification --data nli.jsonl {TRAIN} --set weight_decay=0.5",
        read=partial(trained, "./out"),
        unfinished=r"out\.training/.*",
        varies=r"out/(curve.html|metrics.jsonl|training.json)",
        may_refuse=True,
        modules=processes.HEAVY,
    ),
    Target(
        "fetched data",
        "data get biosses -o out --from hub",
        "out",
        read=partial(fetched, "out"),
        unfinished=r"out(/.*)?",
    ),
)


# -- states of the folder of a run -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class States:
    """The folder of a target before and after an undisturbed run."""

    folder: Path  # where runs happen; always the same, since some files name it
    old_copy: Path
    new_copy: Path
    old: dict[str, bytes]
    new: dict[str, bytes]
    old_value: Any
    new_value: Any
    elapsed_s: float


@cache
def prepare(target: Target, home: Path) -> States:
    """Make inputs and the old result, and run the command once undisturbed: once for all campaigns."""
    inputs = home / "inputs"
    if not inputs.exists():
        write_inputs(inputs)
    home = home / str(len(list(home.iterdir())))
    folder = home / "run"
    shutil.copytree(inputs, folder)
    for line in (*target.before, *([target.old] if target.old else [])):
        succeed(shlex.split(line), folder)
    shutil.copytree(folder, home / "old")
    old_value = value_of(target, folder) if target.old else None
    elapsed_s = succeed(shlex.split(target.new), folder).elapsed_s
    shutil.copytree(folder, home / "new")
    return States(
        folder,
        home / "old",
        home / "new",
        contents(home / "old"),
        contents(home / "new"),
        old_value,
        value_of(target, folder),
        elapsed_s,
    )


def succeed(arguments: list[str], folder: Path) -> processes.Finished:
    finished = processes.run(arguments, folder)
    if finished.code != 0:
        raise RuntimeError(f"undisturbed, isosent {shlex.join(arguments)} ended with {finished.code}: {finished.err}")
    return finished


def restore(states: States, copy: Path) -> None:
    """Put the folder of the run into a state again."""
    shutil.rmtree(states.folder, ignore_errors=True)
    shutil.copytree(copy, states.folder)


def value_of(target: Target, folder: Path) -> Any:
    """What the reader of a target gives, or the sentence with which it refuses; None without a reader."""
    if target.read is None:
        return None

    def inside() -> Any:
        import os

        from isosent.errors import IsosentError

        os.chdir(folder)
        os.environ["ISOSENT_CACHE"] = str(folder / "cache")
        try:
            return ("value", target.read())
        except (IsosentError, FileNotFoundError) as error:
            return ("refused", str(error))

    finished = processes.forked(inside)
    return finished.value or ("crash", f"{finished.code}: {finished.err[-500:]}")


# what differs between two undisturbed runs: times, checksums over them, and names with a hash of them
_VOLATILE = re.compile(
    rb'"(seconds|checksum|fitted_at|time|created|peak_mib|speed|[a-z_]*_(s|at)|[a-z_]*per_second)": *[^,}\n]+'
    rb"|xxh3:[0-9a-f]{32}"
)


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder, without what differs from run to run."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() or not any(path.iterdir())]
    return {str(path.relative_to(folder)): _stable(path) for path in paths}


def _stable(path: Path) -> bytes:
    return _VOLATILE.sub(b"", path.read_bytes()) if path.is_file() else b""


def interrupted_training(folder: Path) -> None:
    """Leave what a training leaves that is killed after its second checkpoint."""
    import os
    import signal

    from campaign.kills import patched

    def die(*_: object) -> None:
        if Path("out.training/checkpoint-4").exists():
            os.kill(os.getpid(), signal.SIGKILL)

    line = f"train classification --data nli.jsonl {TRAIN}"
    finished = processes.run(shlex.split(line), folder, prepare=partial(patched, die))
    if finished.code != -signal.SIGKILL:
        raise RuntimeError(f"the training was to be killed; it ended with {finished.code}: {finished.err}")
