"""Search: an index that knows its vector space, its recall, and when nothing matches."""
