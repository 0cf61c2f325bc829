"""The tables of the papers again: each condition measured where its model is at hand, beside what was published."""
