"""CIGA: the invariant subgraph: tables, analyses, claims and printed figures."""
