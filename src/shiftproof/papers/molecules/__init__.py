"""Tables of molecules of one's own: tables, analyses, claims and printed figures."""
