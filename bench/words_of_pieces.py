"""Word vectors made of token vectors: each word of the STS sets gets the mean of its pieces; GloVe text.

Makes the files "MiniLM words" and "wordllama words" of docs/research/word_vectors.md.
Usage: python bench/words_of_pieces.py REFERENCE DATA OUT [--norm N], as in
python bench/words_of_pieces.py "hf:DIR?static=true" DIR minilm_words.txt --norm 5
"""

import argparse
import re
from pathlib import Path

import numpy as np

import isosent
from isosent.evaluation.sts import read_sts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reference", help="model of token vectors")
    parser.add_argument("data", help="folder with the STS files")
    parser.add_argument("out", type=Path, help="file to write")
    parser.add_argument("--norm", type=float, help="mean length that the vectors are scaled to")
    arguments = parser.parse_args()
    texts = (text.lower() for task in read_sts(arguments.data) for text in task.target_texts)
    words = list(dict.fromkeys(word for text in texts for word in re.findall(r"\w+|[^\w\s]+", text)))
    vectors = isosent.load(arguments.reference).encode(words)
    known = vectors.any(axis=1)
    if arguments.norm:
        vectors *= arguments.norm / np.linalg.norm(vectors[known], axis=1).mean()
    with arguments.out.open("w", encoding="utf-8") as file:
        for row in np.flatnonzero(known):
            file.write(f"{words[row]} {' '.join(f'{number:.6g}' for number in vectors[row])}\n")
    print(f"{arguments.out}: {known.sum()} words of {len(words)}, {vectors.shape[1]} dimensions")


if __name__ == "__main__":
    main()
