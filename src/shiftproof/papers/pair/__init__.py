"""PAIR: objectives that conflict: tables, analyses, claims and printed figures."""
