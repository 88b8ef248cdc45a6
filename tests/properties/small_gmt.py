"""Small graphs with motifs, and small methods of the GMT paper on them."""

import torch

import shiftproof as sp
from shiftproof.methods import DataShape, Method, Network

SMALL = {"train_per_class": 8, "val_per_class": 3, "test_per_class": 3}
NETWORK = Network("gin", layers=2, hidden=8, readout="sum", style="gmt")


def small_motifs() -> sp.Dataset:
    return sp.load("spmotif-gsat", edge_ones=True, **SMALL)


def made(kind: type[Method], data: sp.Dataset, network: Network = NETWORK, **options) -> Method:
    torch.manual_seed(0)
    method = kind(DataShape.of(data), network=network, **options)
    for _ in range(3):  # lively running statistics
        with torch.no_grad():
            method(data.train.whole())
    return method
