"""Theorems on linearised networks that can be checked (`theorems`), the mapping from added edges to injected nodes
(`mapping`) and what a homophily defender can promise (`certificate`)."""
