"""Parse trees of sentences as graphs: bracketed text in, packed words or constituents out."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from shiftproof.data.graphs import GraphSet
from shiftproof.data.readers.idx import _bytes_of
from shiftproof.errors import ShiftproofError, unknown

Nodes = Literal["words", "constituents"]
_TOKEN = re.compile(r"\((\d+) |([^ ()\t\r]+)|(\))")  # a word may hold a non-breaking space, as "8 1/2" does
BUCKETS = 1 << 15  # words and pieces of words are hashed into this many
PIECES = (3, 4, 5)  # lengths of the pieces of a word that get a bucket of their own


@dataclass(frozen=True, eq=False)
class Trees:
    """Parse trees one after the other, nodes in the order their brackets open: a parent comes before its children.

    `size[i]` nodes belong to tree `i`; `parent` counts inside a tree and is -1 at its root; `label` is the number at
    the bracket; `word` holds the text of a leaf and is empty elsewhere.
    """

    size: list[int] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    label: list[int] = field(default_factory=list)
    word: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.size)

    def __add__(self, other: Trees) -> Trees:
        return Trees(
            self.size + other.size, self.parent + other.parent, self.label + other.label, self.word + other.word
        )


def read_trees(path: str | Path) -> Trees:
    """The trees of a file with one bracketed sentence a line, such as `(3 (2 It) (4 works))`; plain or gzipped."""
    try:
        text = _bytes_of(Path(path)).decode("utf-8")
    except UnicodeDecodeError as problem:
        raise ShiftproofError(f"{path} is not UTF-8 text ({problem})") from None
    trees = Trees()
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            _parse(line, trees, f"{path} line {number}")
    if not len(trees):
        raise ShiftproofError(f"{path} holds no tree")
    return trees


def tree_graphs(trees: Trees, nodes: Nodes = "words", width: int = 128) -> GraphSet:
    """One graph a tree, edges in both directions, labelled with the number at the root.

    Nodes are the words, where each constituent links the heads of its parts (the head of the longest part is its own,
    the last of equally long ones), or the constituents, linked to their parts. Features are `width` numbers that follow
    from the spelling of a word alone (zero for constituents of several words) and its place in the sentence. The node
    column "sentiment" holds the number at each node's bracket.
    """
    if nodes not in ("words", "constituents"):
        raise unknown("nodes of a tree", nodes, ("words", "constituents"))
    if width < 1:
        raise ShiftproofError(f"word features need a width of at least 1, not {width}")
    starts = np.concatenate([[0], np.cumsum(trees.size)])
    label = np.array(trees.label)
    is_word = np.array([bool(word) for word in trees.word])
    words_before = np.concatenate([[0], np.cumsum(is_word)])
    if nodes == "words":
        size = words_before[starts[1:]] - words_before[starts[:-1]]
        links = [_word_links(trees, start, end) for start, end in pairwise(starts.tolist())]
        edges = np.array([link for some in links for link in some], dtype=np.int64).reshape(-1, 2)
        count = np.array([len(some) for some in links])
        kept = is_word
        place = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
        place = place / np.maximum(np.repeat(size, size) - 1, 1)
    else:
        size, kept = np.array(trees.size), np.ones(len(label), bool)
        parent = np.array(trees.parent)
        child = np.arange(len(label)) - np.repeat(starts[:-1], size)
        edges = np.stack([parent, child], axis=1)[parent >= 0]
        count = size - 1
        place = child / np.maximum(np.repeat(size, size) - 1, 1)
    both = np.stack([edges, edges[:, ::-1]], axis=1).reshape(-1, 2)
    spelled = word_features([word for word, keep in zip(trees.word, kept, strict=True) if keep], width)
    return GraphSet.from_parts(
        torch.from_numpy(size),
        torch.from_numpy(2 * count),
        torch.from_numpy(both.T.copy()),
        x=torch.from_numpy(np.concatenate([spelled, place[:, None].astype(np.float32)], axis=1)),
        y=torch.from_numpy(label[starts[:-1]]),
        node_columns={"sentiment": torch.from_numpy(label[kept])},
    )


def word_features(words: Sequence[str], width: int) -> np.ndarray:
    """`[n, width]`: for each word a fixed random direction of its own plus the mix of those of its pieces."""
    different = list(dict.fromkeys(words))
    position = {word: number for number, word in enumerate(different)}
    directions = _directions(width)
    table = np.zeros((len(different), width), np.float32)
    for number, word in enumerate(different):
        if word:
            whole, *pieces = _buckets(word.lower())
            table[number] = directions[whole] + directions[pieces].sum(0) / np.sqrt(len(pieces), dtype=np.float32)
    return table[[position[word] for word in words]].reshape(len(words), width)


def _buckets(word: str) -> list[int]:
    """Where the word and its pieces (with its two ends marked) are hashed to; the word itself comes first."""
    marked = f"<{word}>"
    pieces = {marked[i : i + k] for k in PIECES for i in range(len(marked) - k + 1)} or {marked}
    return [zlib.crc32(text.encode()) % BUCKETS for text in (word, *sorted(pieces))]


@lru_cache(maxsize=2)
def _directions(width: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(BUCKETS, width)).astype(np.float32) / np.sqrt(width, dtype=np.float32)


def _parse(line: str, trees: Trees, where: str) -> None:
    first = len(trees.parent)
    open_nodes: list[int] = []
    parent, label, word = trees.parent, trees.label, trees.word
    reached = 0
    for match in _TOKEN.finditer(line):
        if line[reached : match.start()].strip():
            raise ShiftproofError(f"{where}: '{line[reached : match.start()].strip()}' is not part of a tree")
        reached = match.end()
        number, text, _ = match.groups()
        if number is not None:
            if not open_nodes and len(parent) > first:
                raise ShiftproofError(f"{where} holds more than one tree")
            parent.append(open_nodes[-1] if open_nodes else -1)
            label.append(int(number))
            word.append("")
            open_nodes.append(len(parent) - 1 - first)
        elif text is not None:
            here = first + open_nodes[-1] if open_nodes else -1
            if here != len(parent) - 1 or word[here]:
                raise ShiftproofError(f"{where}: '{text}' does not stand alone in a bracket with its label")
            word[here] = text.replace("\\/", "/")
        elif open_nodes:
            here = first + open_nodes.pop()
            if here == len(parent) - 1 and not word[here]:
                raise ShiftproofError(f"{where} has a bracket with neither a word nor a part")
        else:
            raise ShiftproofError(f"{where} closes more brackets than it opens")
    if open_nodes or line[reached:].strip():
        raise ShiftproofError(f"{where} is cut short: {len(open_nodes)} brackets are not closed")
    trees.size.append(len(parent) - first)


def _word_links(trees: Trees, start: int, end: int) -> list[tuple[int, int]]:
    """The links between the words of one tree; words are numbered in their order."""
    number = 0
    head, length = [-1] * (end - start), [0] * (end - start)
    for node in range(end - start):
        if trees.word[start + node]:
            head[node], length[node] = number, 1
            number += 1
    # children come after their parent: from the back, all parts of a node are complete when it is reached
    longest = [0] * (end - start)
    parts: list[list[int]] = [[] for _ in range(end - start)]
    for node in range(end - start - 1, -1, -1):
        above = trees.parent[start + node]
        if above < 0:
            continue
        length[above] += length[node]
        parts[above].append(head[node])
        if length[node] > longest[above]:  # parts come last to first, so that the last of equal ones stays
            longest[above], head[above] = length[node], head[node]
    return [
        (head[node], other) for node in range(end - start) for other in reversed(parts[node]) if other != head[node]
    ]
