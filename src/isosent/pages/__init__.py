"""HTML pages that need nothing else: what all of them share."""
