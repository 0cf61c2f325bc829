"""Results of evaluations and studies as a page, and as figures."""
