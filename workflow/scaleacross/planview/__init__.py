"""One plan, shown to people and to machines: where its ranks lie, what its groups move, what its stages hold."""
