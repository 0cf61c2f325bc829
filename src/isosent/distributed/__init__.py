"""Jobs on several machines: the same shards, made by the workers of a Ray cluster."""
