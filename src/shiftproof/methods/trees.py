"""Decision trees as flat arrays: taken over from scikit-learn and LightGBM, kept as tensors, asked with plain torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

AT_ONCE = 1 << 21  # pairs of a sample and a tree that are walked together


@dataclass(frozen=True, eq=False)
class Trees:
    """Many trees end to end.

    A sample at node `i` goes to `left[i]` where `x[feature[i]] <= threshold[i]`, else to `right[i]`; a leaf leads to
    itself and holds `value[i]`, one number or one for each output. Tree `t` begins at node `root[t]` and adds to
    `output[t]`; `depth` is the length of the longest way.
    """

    feature: Tensor
    threshold: Tensor
    left: Tensor
    right: Tensor
    value: Tensor
    root: Tensor
    output: Tensor
    depth: int

    def sums(self, x: Tensor, outputs: int) -> Tensor:
        """[samples, outputs]: the leaves that each sample ends in, added up."""
        wide = self.value.shape[1] > 1
        found = torch.zeros(len(x), outputs, dtype=torch.double, device=x.device)
        each = max(AT_ONCE // max(len(self.root), 1), 1)
        for start in range(0, len(x), each):
            some = x[start : start + each].float()
            node = self.root.expand(len(some), -1)
            for _ in range(self.depth):
                here = node.flatten()
                asked = some.gather(1, self.feature[here].view(node.shape).long())
                goes_left = asked <= self.threshold[here].view(node.shape)
                node = torch.where(goes_left, self.left[here].view(node.shape), self.right[here].view(node.shape))
            values = self.value[node.flatten()].double().view(*node.shape, -1)
            if wide:
                found[start : start + each] = values.sum(1)
            else:
                found[start : start + each].index_add_(1, self.output.long(), values.squeeze(2))
        return found


def float_below(threshold: np.ndarray) -> np.ndarray:
    """The largest 32-bit number that is not above each: features are 32-bit, so the question stays the same."""
    narrow = threshold.astype(np.float32)
    return np.where(narrow > threshold, np.nextafter(narrow, np.float32(-np.inf)), narrow).astype(np.float32)


def joined(trees: Sequence[Mapping[str, np.ndarray]], outputs: Sequence[int]) -> Trees:
    """One `Trees` of many trees: each has `feature`, `threshold`, `left`, `right`, `value` and `leaf` by its nodes."""
    parts: dict[str, list[np.ndarray]] = {n: [] for n in ("feature", "threshold", "left", "right", "value")}
    roots, depth, start = [], 0, 0
    for tree in trees:
        leaf = tree["leaf"]
        own = np.arange(len(leaf))
        value = np.asarray(tree["value"], np.float64).reshape(len(leaf), -1)
        left, right = np.where(leaf, own, tree["left"]), np.where(leaf, own, tree["right"])
        depth = max(depth, _depth(left, right, leaf))
        parts["feature"].append(np.where(leaf, 0, tree["feature"]))
        parts["threshold"].append(np.where(leaf, 0.0, tree["threshold"]))
        parts["left"].append(left + start)
        parts["right"].append(right + start)
        parts["value"].append(value)
        roots.append(start)
        start += len(leaf)
    joint = {name: np.concatenate(arrays) for name, arrays in parts.items()}
    return Trees(
        feature=torch.from_numpy(joint["feature"].astype(np.int32)),
        threshold=torch.from_numpy(float_below(joint["threshold"])),
        left=torch.from_numpy(joint["left"].astype(np.int32)),
        right=torch.from_numpy(joint["right"].astype(np.int32)),
        value=torch.from_numpy(joint["value"]),
        root=torch.tensor(roots, dtype=torch.int32),
        output=torch.tensor(list(outputs), dtype=torch.int32),
        depth=depth,
    )


def _depth(left: np.ndarray, right: np.ndarray, leaf: np.ndarray) -> int:
    level, depth = np.zeros(1, np.int64), 0
    while True:
        level = level[~leaf[level]]
        if not len(level):
            return depth
        level = np.concatenate([left[level], right[level]])
        depth += 1


def of_sklearn(tree: Any) -> dict[str, np.ndarray]:
    """The arrays of a fitted `sklearn.tree` tree; its values are shares of classes, or means."""
    inner = tree.tree_
    return {
        "feature": inner.feature,
        "threshold": inner.threshold,
        "left": inner.children_left,
        "right": inner.children_right,
        "value": inner.value.reshape(len(inner.feature), -1),
        "leaf": inner.children_left < 0,
    }


def of_histogram_boosting(predictor: Any) -> dict[str, np.ndarray]:
    """The arrays of one tree of scikit-learn's histogram boosting."""
    nodes = predictor.nodes
    return {
        "feature": nodes["feature_idx"].astype(np.int64),
        "threshold": nodes["num_threshold"].astype(np.float64),
        "left": nodes["left"].astype(np.int64),
        "right": nodes["right"].astype(np.int64),
        "value": nodes["value"],
        "leaf": nodes["is_leaf"].astype(bool),
    }


def of_lightgbm(structure: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The arrays of one tree as `Booster.dump_model` describes it."""
    rows: list[list[float]] = []
    waiting: list[tuple[Mapping[str, Any], int, int]] = [(structure, -1, 0)]
    while waiting:
        node, parent, side = waiting.pop()
        number = len(rows)
        if parent >= 0:
            rows[parent][side] = number
        if "split_feature" not in node:
            rows.append([0, 0, 0.0, 0, node["leaf_value"], 1])
            continue
        assert node["decision_type"] == "<=", "columns of a table are numbers, not categories"
        rows.append([0, 0, node["threshold"], node["split_feature"], 0.0, 0])
        waiting += [(node["left_child"], number, 0), (node["right_child"], number, 1)]
    table = np.array(rows, np.float64)
    return {
        "left": table[:, 0].astype(np.int64),
        "right": table[:, 1].astype(np.int64),
        "threshold": table[:, 2],
        "feature": table[:, 3].astype(np.int64),
        "value": table[:, 4],
        "leaf": table[:, 5].astype(bool),
    }
