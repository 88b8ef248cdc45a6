"""FeAT: rich features before invariance: tables, analyses, claims and printed figures."""
