"""The page of results: docs/results.md, rendered from docs/results.json, and what measures the rows of that file.

  python bench/results.py render                     writes the page, its figure and the tables of guides, from the JSON
  python bench/results.py measure DATA FOLDER RUN ... runs the command of a run of the JSON, which writes
      FOLDER/RUN.json (one that is there is read, not made again), and prints each score that differs from the JSON.
      --model NAME=REFERENCE measures other weights of a model, such as those of a folder on this machine.
  python bench/results.py speed DATA NAME ...         texts encoded in a second of processor time, by one thread
  python bench/results.py published REPOSITORY        MTEB's scores of other models, from a checkout of
      https://github.com/embeddings-benchmark/results, and how many neighbors in its ranking cannot be told apart
All but `render` take --write, which keeps what was measured in the JSON. DATA holds the original files of the tasks.
"""

import argparse
import json
import math
import re
import shlex
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

import isosent
from isosent.pages.figures import Axis, Figure, Key, Panel, svg_file

ROOT = Path(__file__).parents[1]
FILE, PAGE, FIGURES = ROOT / "docs/results.json", ROOT / "docs/results.md", ROOT / "docs/figures"
STS = ("STS12", "STS13", "STS14", "STS15", "STSB", "SICKR")
TASKS = ("Banking77Classification", "StackOverflow", "Cranfield", "CQA-2016-dev", "CQA-2016-test")
METHODS = {None: "none", "mean_centering": "mean_centering", "auto": "auto", "whitening": "whitening"}
TRANSFORMS = " ".join(f"--transform {name}" for name in METHODS.values())
MEAN = "mean"
N_SPEED, REPEATS, LEAST_S = 64, 3, 0.3


def command_of(run, results, data="DATA", reference=None):
    """The command of a run, for the shell."""
    reference = reference or results["models"][run["model"]]["reference"]
    reference = shlex.quote(reference.replace("DATA", str(data)))
    tasks = " ".join(run["tasks"])
    return f"isosent evaluate {tasks} --data {data} -m {reference} {TRANSFORMS} -o {run['name']}.json"


# ------------------------------------------------------------------------------------------------------------ measured


def measure(results, arguments):
    """Run commands, and put what they give in place of the entries of these runs."""
    references = dict(each.split("=", 1) for each in arguments.model)
    for name in arguments.runs:
        run = next(each for each in results["runs"] if each["name"] == name)
        path = arguments.folder / f"{name}.json"
        if not path.exists():
            command = command_of(run, results, arguments.data.resolve(), references.get(run["model"]))
            program = str(Path(sys.executable).with_name("isosent"))
            subprocess.run([program, *shlex.split(command)[1:]], check=True, cwd=arguments.folder, stdout=sys.stderr)
        entries = list(entries_of(isosent.read_result(path), run))
        before = {key_of(each): each for each in results["entries"]}
        for entry in entries:
            stored = before.get(key_of(entry), {}).get("value")
            if stored is None or abs(stored - entry["value"]) > 0.005:
                print(f"{key_of(entry)}: {entry['value']}, on the page {stored}")
        print(f"{name}: {len(entries)} scores")
        names = {key_of(each) for each in entries}
        results["entries"] = [each for each in results["entries"] if key_of(each) not in names] + entries
        run["date"] = f"{datetime.fromtimestamp(path.stat().st_mtime, UTC):%Y-%m-%d}"
    add_means(results)


def key_of(entry):
    return entry["model"], entry["method"], entry["data"], entry["metric"]


def entries_of(result, run):
    """Main scores x100 of all transforms; of clusters and classes also those of vectors of length 1."""
    for each in (result, *result.variants):
        method = METHODS[each.fitting["transform"]]
        for name, task in each.tasks.items():
            mteb = task.mteb(name)
            for metric in (task.metric, f"{task.metric}_unit"):
                if metric not in task.scores:
                    continue
                entry = {"model": run["model"], "method": method, "data": name, "metric": metric}
                entry["value"] = round(100 * task.scores[metric], 2)
                if metric in task.intervals and not math.isnan(task.intervals[metric][0]):
                    entry["interval"] = [round(100 * end, 2) for end in task.intervals[metric]]
                if metric == task.metric and mteb is not None:
                    entry["mteb"] = str(mteb)
                if metric == task.metric and task.choice is not None:
                    entry["choice"] = task.choice["chosen"]
                yield entry | {"run": run["name"]}


def add_means(results):
    """The mean over the STS sets that a model has been scored on, beside MTEB's and ours alike."""
    entries = [each for each in results["entries"] if each["data"] != MEAN]
    scores = {}
    for each in entries:
        if each["data"] in STS and each["metric"] == "spearman":
            scores.setdefault((each["model"], each["method"]), {})[each["data"]] = each
    for (model, method), by_task in scores.items():
        if set(by_task) == set(STS):
            mean = round(float(np.mean([by_task[name]["value"] for name in STS])), 2)
            source = {name: by_task["STSB"][name] for name in ("run", "source") if name in by_task["STSB"]}
            entries.append(
                {"model": model, "method": method, "data": MEAN, "metric": "spearman", "value": mean} | source
            )
    results["entries"] = entries


def speed(results, arguments):
    """Texts encoded in a second of processor time; all models in turns, so that ratios hold on a busy machine."""
    references = dict(each.split("=", 1) for each in arguments.model)
    texts = list(dict.fromkeys((arguments.data / "stsbenchmark/sts-dev.csv").read_text("utf-8").splitlines()))
    texts = [line.split("\t")[5] for line in texts][:N_SPEED]
    models = {}
    for name in arguments.names:
        reference = references.get(name) or results["models"][name]["reference"]
        models[name] = isosent.load(reference.replace("DATA", str(arguments.data)))
        if models[name].encoder.needs_corpus:
            models[name] = models[name].fitted(texts, transform=None)
        models[name].encode(texts)
    rates = {name: [] for name in models}
    for _ in range(REPEATS):
        for name, model in models.items():
            started, n_encoded = time.process_time(), 0
            while time.process_time() - started < LEAST_S:
                model.encode(texts)
                n_encoded += len(texts)
            rates[name].append(n_encoded / (time.process_time() - started))
    for name, each in rates.items():
        n_words = np.mean([len(text.split()) for text in texts])
        results["models"][name] |= {"texts_per_s": round(float(np.median(each)), 1), "dim": models[name].dim}
        print(json.dumps({"model": name, **results["models"][name], "words_of_a_text": round(float(n_words), 1)}))


def published(results, arguments):
    """MTEB's scores of other models, and its ranking of models that have all tasks of MTEB(eng, v2)."""
    for source in results["sources"]:
        if "folder" not in source:
            continue
        tasks = isosent.read_result(arguments.repository / "results" / source["folder"]).tasks
        for name in (*STS, "Banking77Classification"):
            entry = {"model": source["model"], "method": "none", "data": name, "metric": tasks[name].metric}
            value = {"value": round(100 * tasks[name].score, 2), "source": source["name"]}
            results["entries"] = [each for each in results["entries"] if key_of(each) != key_of(entry)]
            results["entries"].append(entry | value)
    add_means(results)
    results["ranks"] |= ranks(arguments.repository, set(results["ranks"]["tasks"]))
    print(json.dumps({name: value for name, value in results["ranks"].items() if name != "tasks"}))


def ranks(repository, wanted):
    """Neighbors by the mean over all tasks that `isosent report` cannot tell apart, of models with all tasks."""
    from isosent.report.leaderboard import ResultFile, make_leaderboard

    files = []
    for model in sorted((repository / "results").iterdir()):
        tasks = {}
        for folder in sorted(model.iterdir()):  # revisions; the first one that has a task counts
            if not any(folder.glob("*.json")) or [each.name for each in folder.glob("*.json")] == ["model_meta.json"]:
                continue
            result = isosent.read_result(folder)
            for name, task in result.tasks.items():
                is_english = task.protocol["subset"] in ("default", "en", "en-en")
                if task.protocol["task"] in wanted and task.protocol["split"] == "test" and is_english:
                    tasks.setdefault(name, task)
        if len({task.protocol["task"] for task in tasks.values()}) == len(wanted):
            own = {**result.model, "reference": model.name, "options": {}}
            files.append(ResultFile(model.name, replace(result, tasks=tasks, model=own)))
    (note,) = [each for each in make_leaderboard(files).notes if "neighboring" in each]
    n_close, n_neighbors = (int(word) for word in note.split("tasks, ")[1].split() if word.isdigit())
    return {"models": len(files), "neighbors": n_neighbors, "not_told_apart": n_close}


# ------------------------------------------------------------------------------------------------------------ the page


def table(head, rows, n_left=1):
    marks = ["---"] * n_left + ["---:"] * (len(head) - n_left)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, marks, *rows))


def number(entry, is_best=False):
    text = "" if entry is None else f"{entry['value']:.2f}"
    return f"**{text}**" if is_best else text


def interval(entry):
    return "{:.1f} to {:.1f}".format(*entry["interval"]) if entry and "interval" in entry else ""


def score_tables(results, columns):
    """A row for each model and method: the scores, and their intervals in a second table."""
    by_key = {key_of(each): each for each in results["entries"]}
    rows, intervals = [], []
    models = dict.fromkeys(each["model"] for each in results["entries"] if each["data"] in [c[0] for c in columns])
    order = list(results["models"])
    for model in sorted(models, key=lambda name: order.index(name) if name in order else len(order)):
        methods = [m for m in METHODS.values() if any((model, m, *column[:2]) in by_key for column in columns)]
        for method in methods:
            cells = [by_key.get((model, method, *column[:2])) for column in columns]
            best = [
                cell is not None
                and len(methods) > 1
                and cell["value"] >= max(by_key[model, m, *c[:2]]["value"] for m in methods)
                for cell, c in zip(cells, columns, strict=True)
            ]
            is_theirs = "source" in next(cell for cell in cells if cell)
            source = next(cell for cell in cells if cell).get("source", "")
            name = f"*{model}* [{source}](#sources)" if is_theirs else model
            rows.append([name, "as published" if is_theirs else f"`{method}`", *map(number, cells, best)])
            if not is_theirs:
                intervals.append([model, f"`{method}`", *map(interval, cells)])
    head = ["model", "method", *(column[2] for column in columns)]
    kept = [place for place in range(2, len(head)) if any(row[place] for row in intervals)]
    narrow = [[row[place] for place in (0, 1, *kept)] for row in (head, *intervals)]
    folded = f"<details markdown><summary>95% intervals</summary>\n\n{table(narrow[0], narrow[1:], 2)}\n\n</details>"
    return f"{table(head, rows, 2)}\n\n{folded}"


def commands(results):
    lines = [f"{command_of(run, results)}  # {run['date']}" for run in results["runs"] if "date" in run]
    return "\n".join(lines)


def figure(results):
    """Mean over the STS sets by texts in a second; an area by the bytes of a vector."""
    means = {(e["model"], e["method"]): e["value"] for e in results["entries"] if e["data"] == MEAN}
    means = {(model.removesuffix(", MTEB"), method): value for (model, method), value in means.items()} | means
    shown = {name: facts for name, facts in results["models"].items() if "texts_per_s" in facts}
    points = [(name, facts, means[name, "none"]) for name, facts in shown.items() if (name, "none") in means]
    values = [value for *_, value in points]
    low, high = 5 * math.floor(min(values) / 5), 5 * math.ceil((max(values) + 0.1) / 5)
    rates = [facts["texts_per_s"] for _, facts, _ in points]
    x = Axis("texts in a second of processor time", 10 ** math.floor(math.log10(min(rates))), 2 * max(rates), log=True)
    panel = Panel(x, Axis("mean of six STS sets, Spearman x100", low, high), width=640, height=300)
    for place, (name, facts, value) in enumerate(points):
        color = f"c{place % 6}"
        panel.dot(facts["texts_per_s"], value, color, shape=place, tip=name)
        panel.text(facts["texts_per_s"], value, f"{4 * facts['dim']:,} bytes", shift=(9, 4), color=color)
    keys = [Key(name, f"c{place % 6}", shape=place) for place, (name, *_) in enumerate(points)]
    return Figure("Quality against speed and bytes", "", [("", [panel])], keys)


def shown(study):
    """What a study found: a sentence, or the guide that has the table."""
    return study["shown"] if "shown" in study else f"the table of [{study['guide']}]({study['guide']}.md)"


def with_tables(text, results):
    """A guide with the tables of the JSON, each after the comment that names it."""
    for each in results["studies"]:
        if "rows" in each:
            comment = f"<!-- table of results.json: {each['name']} -->"
            rows = table(each["rows"][0], each["rows"][1:], len(each["rows"][0]))
            text = re.sub(rf"({comment}\n\n)(\|.*\n)*", lambda found, rows=rows: f"{found[1]}{rows}\n", text)
    return text


def render(results):
    """The page."""
    models = [
        [name, f"`{facts['reference']}`", facts["from"], str(facts.get("dim", "")), f"{facts.get('texts_per_s', '')}"]
        for name, facts in results["models"].items()
        if "texts_per_s" in facts or any(each["model"] == name for each in results["entries"])
    ]
    sources = [f"- **{source['name']}**: {source['citation']}" for source in results["sources"]]
    studies = [
        [each["what"], shown(each), f"`{each['command']}`", f"[{Path(each['page']).name}]({each['page']}.md)"]
        for each in results["studies"]
    ]
    parts = {
        "models": table(["name", "MODEL", "weights from", "dimensions", "texts/s"], models, 3),
        "sts": score_tables(results, [(name, "spearman", results["columns"][name]) for name in (*STS, MEAN)]),
        "tasks": score_tables(
            results,
            [
                ("Banking77Classification", "accuracy", "Banking77 Classification"),
                ("StackOverflow", "v_measure", "StackOverflow clusters"),
                ("StackOverflow", "v_measure_unit", "at length 1"),
                ("Cranfield", "ndcg@10", "Cranfield"),
                ("CQA-2016-dev", "map", "CQA 2016 dev"),
                ("CQA-2016-test", "map", "CQA 2016 test"),
            ],
        ),
        "commands": commands(results),
        "studies": table(["what", "result", "command", "study"], studies, 4),
        "sources": "\n".join(sources),
        "figure": results["figure"],
        **{f"{name}": str(value) for name, value in results["ranks"].items() if name not in ("tasks", "models")},
        "models_ranked": str(results["ranks"]["models"]),
        "n_tasks": str(len(results["ranks"]["tasks"])),
    }
    text = (Path(__file__).parent / "results_page.md").read_text("utf-8")
    for name, part in parts.items():
        text = text.replace(f"{{{name}}}", part)
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("render")
    for name, run in (("measure", measure), ("speed", speed), ("published", published)):
        command = commands.add_parser(name)
        command.set_defaults(run=run)
        command.add_argument("--write", action="store_true")
        if name == "published":
            command.add_argument("repository", type=Path)
            continue
        command.add_argument("data", type=Path)
        command.add_argument("--model", action="append", default=[], metavar="NAME=REFERENCE")
        if name == "measure":
            command.add_argument("folder", type=Path)
        command.add_argument("runs" if name == "measure" else "names", nargs="+")
    arguments = parser.parse_args()
    results = json.loads(FILE.read_text("utf-8"))
    if arguments.command == "render":
        PAGE.write_text(render(results), "utf-8")
        for name in {each["guide"] for each in results["studies"] if "guide" in each}:
            path = ROOT / f"docs/{name}.md"
            path.write_text(with_tables(path.read_text("utf-8"), results), "utf-8")
        for theme in ("light", "dark"):
            (FIGURES / f"results_{theme}.svg").write_bytes(svg_file(figure(results), theme))
        return
    arguments.run(results, arguments)
    if arguments.write:
        models, methods = [*results["models"], *(each["model"] for each in results["sources"])], list(METHODS.values())
        results["entries"].sort(key=lambda e: (models.index(e["model"]), e["data"], methods.index(e["method"])))
        FILE.write_text(dumped(results), "utf-8")


def dumped(results):
    """JSON with an entry on each line."""
    lines = {
        name: value
        for name, value in results.items()
        if isinstance(value, list) and value and isinstance(value[0], dict)
    }
    text = json.dumps({**results, **dict.fromkeys(lines, None)}, indent=1, ensure_ascii=False)
    for name, value in lines.items():
        rows = ",\n".join(f"  {json.dumps(each, ensure_ascii=False)}" for each in value)
        text = text.replace(f'"{name}": null', f'"{name}": [\n{rows}\n ]')
    return text + "\n"


if __name__ == "__main__":
    main()
