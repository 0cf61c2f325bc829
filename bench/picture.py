"""The picture of the README: the demo's pool of languages before and after erasing the language, light and dark.

Usage: python bench/picture.py [--output docs/figures]

Needs the extra plots. Each text is a dot: the first two principal components of the vectors of length 1 of the texts
that the erasure was not fitted on. Prints how many of the texts have their English translation among the ten nearest.
"""

import argparse
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

import isosent
from isosent.demo import demo_pool, translated_share
from isosent.numeric.similarity import unit_rows

COLORS = {"en": "#2f7ed8", "de": "#e8833a", "es": "#2ba36b", "fr": "#b455b6"}
NAMES = {"en": "English", "de": "German", "es": "Spanish", "fr": "French"}
N_COLORS = 64  # so that the files stay small
THEMES = {"light": "#1f2328", "dark": "#e6edf3"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "docs" / "figures")
    folder = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)
    rows = demo_pool()
    fitted = [row for row in rows if int(row.meaning) % 2]
    held_out = [row for row in rows if not int(row.meaning) % 2]
    model = isosent.load("wordllama")
    erased = model.fitted([row.text for row in fitted], erase={"lang": [row.lang for row in fitted]})
    panels = {}
    for title, each in (("wordllama", model), ("language erased", erased)):
        vectors = unit_rows(each.encode([row.text for row in held_out]))
        share = translated_share(vectors, held_out)
        panels[title] = (vectors, share)
        print(json.dumps({"vectors": title, "translation_among_ten": round(share, 4), "texts": len(held_out)}))
    for theme, ink in THEMES.items():
        plt.rcParams.update({"text.color": ink, "font.size": 11})
        figure, axes = plt.subplots(1, 2, figsize=(9, 3.8))
        for place, (title, (vectors, share)) in zip(axes, panels.items(), strict=True):
            centered = vectors - vectors.mean(axis=0)
            points = centered @ np.linalg.svd(centered, full_matrices=False)[2][:2].T
            for lang, color in COLORS.items():
                own = points[[row.lang == lang for row in held_out]]
                place.scatter(*own.T, s=12, color=color, alpha=0.8, linewidths=0, label=NAMES[lang])
            place.set_title(f"{title}: {share:.0%} find their translation", fontsize=11)
            place.set_axis_off()
        figure.legend(*axes[0].get_legend_handles_labels(), loc="lower center", ncols=4, frameon=False)
        figure.tight_layout(rect=(0, 0.07, 1, 1))
        path = folder / f"pool_{theme}.png"
        figure.savefig(path, dpi=160, transparent=True)
        plt.close(figure)
        Image.open(path).quantize(N_COLORS, method=Image.Quantize.FASTOCTREE).save(path, optimize=True)


if __name__ == "__main__":
    main()
