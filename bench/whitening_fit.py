"""Time, extra memory and exactness of a whitening fit against scikit-learn, FAISS, torch and the published recipe.

Prints a JSON line for each method, data set and shape; all of them are measured in the same run, each in a separate
process, so that memory can be attributed.
Usage: python bench/whitening_fit.py [--quick | --dim 768] [--rows N] [--threads N] [--markdown]
"""

import argparse
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np

SEED = 0
THREADS = 2
SHAPES = ((200_000, 768), (1_000_000, 256))
QUICK_SHAPES = ((20_000, 256),)
# (condition number of the covariance, length of the common mean against the spread)
SPECTRA = {"easy": (2e4, 1.46), "hard": (6e5, 4.36)}


def make_rows(n_rows, dim, condition, offset):
    """Rows with a geometric spectrum of the given condition, in a random basis, and a common mean."""
    rng = np.random.default_rng(SEED)
    scales = condition ** (-np.arange(dim) / (dim - 1) / 2)
    basis = np.linalg.qr(rng.standard_normal((dim, dim)))[0].astype(np.float32)
    mean = rng.standard_normal(dim)
    mean *= offset * np.sqrt((scales**2).sum()) / np.linalg.norm(mean)
    rows = np.empty((n_rows, dim), dtype=np.float32)
    for start in range(0, n_rows, 10_000):
        part = rng.standard_normal((min(10_000, n_rows - start), dim), dtype=np.float32)
        rows[start : start + len(part)] = (part * scales.astype(np.float32)) @ basis + mean.astype(np.float32)
    return rows


def fit_isosent(rows):
    from isosent import Whitening

    whitening = Whitening().fit(rows)
    return whitening.transform


def fit_sklearn(rows):
    from sklearn.decomposition import PCA

    pca = PCA(whiten=True, svd_solver="covariance_eigh").fit(rows)
    return pca.transform


def fit_faiss(rows):
    import faiss

    faiss.omp_set_num_threads(THREADS)
    pca = faiss.PCAMatrix(rows.shape[1], rows.shape[1], -0.5)
    pca.max_points_per_d = len(rows)  # by default it looks at 1,000 rows a dimension
    pca.train(rows)
    return lambda x: pca.apply(x.astype(np.float32))


def fit_torch_recipe(rows):
    """The published recipe, in torch."""
    import torch

    vectors = torch.from_numpy(rows)
    mean = vectors.mean(dim=0)
    u, s, _ = torch.linalg.svd(torch.cov(vectors.T))
    return torch_map(mean, u / s.sqrt())


def fit_torch_product(rows):
    """Second moment in one product, less that of the mean."""
    import torch

    vectors = torch.from_numpy(rows)
    mean = vectors.mean(dim=0)
    values, u = torch.linalg.eigh(vectors.T @ vectors / len(vectors) - torch.outer(mean, mean))
    return torch_map(mean, u / values.sqrt())


def torch_map(mean, weight):
    mean, weight = mean.numpy(), weight.numpy()
    return lambda x: (x - mean) @ weight


def fit_published_recipe(rows):
    """Su et al. 2021, algorithm 1, written plainly."""
    mean = rows.mean(axis=0, keepdims=True)
    covariance = np.cov(rows.T)
    u, s, _ = np.linalg.svd(covariance)
    weight = u @ np.diag(1 / np.sqrt(s))
    return lambda x: (x - mean) @ weight


METHODS = {
    "isosent Whitening": fit_isosent,
    "scikit-learn PCA covariance_eigh": fit_sklearn,
    "FAISS PCAMatrix(-0.5)": fit_faiss,
    "Su et al. numpy recipe": fit_published_recipe,
}
TORCH = importlib.util.find_spec("torch") is not None
if TORCH:
    METHODS |= {"Su et al. recipe in torch": fit_torch_recipe, "torch X.T @ X, eigh": fit_torch_product}
PACKAGES = ("isosent", "numpy", "scikit-learn", "faiss-cpu", "torch")


def deviation_from_identity(rows, transform, dtype):
    """max |cov - I| of the rows transformed in a dtype; a common scale, which no cosine sees, is taken out."""
    dim = rows.shape[1]
    total, scatter = np.zeros(dim), np.zeros((dim, dim))
    for start in range(0, len(rows), 20_000):
        part = np.asarray(transform(rows[start : start + 20_000].astype(dtype)), dtype=np.float64)
        total += part.sum(axis=0)
        scatter += part.T @ part
    mean = total / len(rows)
    covariance = scatter / len(rows) - np.outer(mean, mean)
    scale = np.median(np.diag(covariance))
    return float(np.abs(covariance / scale - np.eye(dim)).max())


def status_bytes(field):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def measure(method, path, repeats):
    rows = np.load(path)
    fit = METHODS[method]
    fit(rows[:1000].copy())  # imports and thread pools
    Path("/proc/self/clear_refs").write_text("5")  # start the high-water mark again
    before = status_bytes("VmRSS")
    seconds, busy = [], []
    for _ in range(repeats):
        start, busy_before = time.perf_counter(), time.process_time()
        transform = fit(rows)
        busy.append(time.process_time() - busy_before)
        seconds.append(time.perf_counter() - start)
    extra = status_bytes("VmHWM") - before
    return {
        "seconds": float(np.median(seconds)),
        "processor_s": float(np.median(busy)),
        "extra_over_input": extra / rows.nbytes,
        "max_abs_cov_minus_identity": deviation_from_identity(rows, transform, np.float32),
        "the_same_applied_in_float64": deviation_from_identity(rows, transform, np.float64),
    }


def run(shapes, repeats, n_threads):
    environment = os.environ | {f"{name}_NUM_THREADS": str(n_threads) for name in ("OMP", "OPENBLAS", "MKL")}
    with tempfile.TemporaryDirectory() as folder:
        for n_rows, dim in shapes:
            for spectrum, (condition, offset) in SPECTRA.items():
                path = Path(folder) / "rows.npy"
                np.save(path, make_rows(n_rows, dim, condition, offset))
                for method in METHODS:
                    command = [sys.executable, __file__, "--measure", method, str(path), str(repeats)]
                    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
                    yield {"method": method, "rows": n_rows, "dim": dim, "spectrum": spectrum} | json.loads(
                        found.stdout
                    )


def conditions():
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "threads": THREADS,
        "seed": SEED,
        "versions": {package: version(package) for package in PACKAGES if TORCH or package != "torch"},
    }


def markdown(lines):
    """A table with the time of each method and its ratio to ours."""
    ours = {(line["rows"], line["dim"], line["spectrum"]): line for line in lines if "isosent" in line["method"]}
    yield (
        "| rows x dim, spectrum | method | seconds | x isosent | x processor | max abs(cov - I) | applied in float64 "
        "| extra memory / input |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for line in lines:
        case = line["rows"], line["dim"], line["spectrum"]
        yield (
            f"| {case[0]:,} x {case[1]}, {case[2]} | {line['method']} | {line['seconds']:.2f} "
            f"| {line['seconds'] / ours[case]['seconds']:.2f} "
            f"| {line['processor_s'] / ours[case]['processor_s']:.2f} | {line['max_abs_cov_minus_identity']:.1e} "
            f"| {line['the_same_applied_in_float64']:.1e} | {line['extra_over_input']:.2f} |"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one small shape")
    parser.add_argument("--dim", type=int, choices=[dim for _, dim in SHAPES], help="one of the shapes")
    parser.add_argument("--rows", type=int, help="other numbers of rows than those of the shapes")
    parser.add_argument("--threads", type=int, default=THREADS)
    parser.add_argument("--markdown", action="store_true", help="print the table, too")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        method, path, repeats = arguments.measure
        print(json.dumps(measure(method, path, int(repeats))))
        return
    print(json.dumps(conditions()))
    lines = []
    shapes = QUICK_SHAPES if arguments.quick else [shape for shape in SHAPES if arguments.dim in (None, shape[1])]
    if arguments.rows:
        shapes = [(arguments.rows, dim) for _, dim in shapes]
    for line in run(shapes, arguments.repeats, arguments.threads):
        lines.append(line)
        print(json.dumps(line), flush=True)
    if arguments.markdown:
        print("\n".join(markdown(lines)))


if __name__ == "__main__":
    main()
