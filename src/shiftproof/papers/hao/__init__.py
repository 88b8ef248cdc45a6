"""HAO: attacks that stay unnoticeable: tables, analyses, claims and printed figures."""
