"""Data sets of several domains: one is seen at test time only, and nothing is learned from it."""

import sys
import types

import numpy as np
import pytest
import torch

from shiftproof.data import load
from shiftproof.data.published.reviews import bag_of_words
from shiftproof.data.published.wilds import IDENTITIES, KNOWN
from shiftproof.data.readers.left_out import LeftOut, domain_dataset, standardised
from shiftproof.errors import ShiftproofError

NAMES = ("a", "b", "c")


def made(left_out: LeftOut, n: int = 60):
    env = np.arange(n) % 3
    values = np.arange(n, dtype=float)[:, None] + 100 * (env == 2)[:, None]
    return domain_dataset(
        standardised(values),
        torch.arange(n) % 2,
        env,
        NAMES,
        left_out,
        name="made",
        provenance="",
        options={},
    )


def test_a_fifth_of_every_training_domain_validates_and_nothing_of_the_test_domain_is_seen():
    data = made(LeftOut("c"))
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 32, "val": 8, "test": 20}
    assert data.env_names_of("train") == data.env_names_of("val") == ("a", "b")
    assert data.env_names_of("test") == ("c",)
    assert data.train.env.bincount().tolist() == [16, 16]
    assert abs(float(data.train.x.mean())) < 1e-6  # scaled by the training rows alone
    assert float(data.test.x.mean()) > 3
    other = made(LeftOut("c", seed=1))
    assert not torch.equal(data.train.x, other.train.x)
    assert torch.equal(data.test.y, other.test.y)


def test_a_whole_domain_can_validate():
    data = made(LeftOut("c", validate="a"))
    assert data.env_names_of("train") == ("b",)
    assert data.env_names_of("val") == ("a",)
    assert len(data.train) == len(data.val) == 20


@pytest.mark.parametrize(
    ("left_out", "said"),
    [
        (LeftOut("d"), "option 'test' of made is a, b or c, not 'd'"),
        (LeftOut("c", validate="d"), "option 'validate' of made is a, b or c, not 'd'"),
        (LeftOut("c", validate="c"), "cannot test and validate on the same domain"),
        (LeftOut("c", holdout=1.0), "share between 0 and 1"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(left_out, said):
    with pytest.raises(ShiftproofError, match=said):
        made(left_out)


def test_words_are_counted_in_the_training_texts_only():
    texts = ["good good book", "bad book", "good bulb", "dim bulb"]
    counts = bag_of_words(texts, np.array([0, 1]), weighting="counts")
    assert counts.tolist() == [[0, 1, 2], [1, 1, 0], [0, 0, 1], [0, 0, 0]]  # bad, book, good
    assert bag_of_words(texts, np.array([0, 1]), weighting="binary").max() == 1
    assert bag_of_words(texts, np.array([0, 1]), words=1, weighting="counts").shape == (4, 1)
    lengths = bag_of_words(texts, np.array([0, 1])).norm(dim=1)
    torch.testing.assert_close(lengths, torch.tensor([1.0, 1.0, 1.0, 0.0]))
    with pytest.raises(ShiftproofError, match="tfidf, binary or counts"):
        bag_of_words(texts, np.array([0]), weighting="often")


@pytest.mark.parametrize(
    ("name", "sizes", "domains", "width"),
    [
        ("office-caltech10:test=webcam", (1790, 448, 295), ("amazon", "caltech10", "dslr"), (800,)),
        ("bike", (10510, 2627, 4242), ("spring", "summer", "autumn"), (38,)),
        ("bike:by=weather", (12765, 3192, 1422), ("clear", "mist"), (37,)),
        ("adult", (37694, 9422, 1695), ("Federal-gov", "Local-gov", "Private"), (98,)),
    ],
)
def test_real_files_come_in_domains(name, sizes, domains, width, real_data):
    try:
        data = load(name)
    except ShiftproofError as missing:
        pytest.skip(str(missing))
    assert tuple(len(split) for split in data.splits.values()) == sizes
    assert data.env_names_of("train")[:3] == domains
    assert tuple(data.train.x.shape[1:]) == width
    torch.testing.assert_close(data.train.x.mean(0), torch.zeros(width), atol=1e-4, rtol=0)


def test_a_group_of_people_can_shift_the_label(real_data):
    try:
        data = load("adult:by=education")
    except ShiftproofError as missing:
        pytest.skip(str(missing))
    assert data.env_names_of("test") == ("Masters",)
    # Masters earn more: the domain shifts the label
    assert float(data.test.y.mean()) > 1.5 * float(data.train.y.mean())


@pytest.mark.slow
def test_reviews_and_digits_come_in_domains(real_data):
    try:
        reviews, digits = load("amazon-reviews:words=500"), load("mnist-usps")
    except ShiftproofError as missing:
        pytest.skip(str(missing))
    assert [len(split) for split in reviews.splits.values()] == [4800, 1200, 2000]
    assert float(reviews.test.y.mean()) == 0.5
    assert reviews.train.x.shape[1] == 500
    assert [len(split) for split in digits.splits.values()] == [56_000, 14_000, 9298]
    assert digits.test.x.shape[1:] == (1, 16, 16)
    assert 0 <= float(digits.test.x.min()) < float(digits.test.x.max()) <= 1


class Subset:
    """What `WILDSDataset.get_subset` gives: inputs, labels and metadata by position."""

    def __init__(self, inputs, y, metadata):
        self.inputs, self.y_array, self.metadata_array = inputs, y, metadata

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, row):
        return self.inputs[row], self.y_array[row], self.metadata_array[row]


class StandIn:
    """A tiny data set with the layout of the WILDS package's."""

    def __init__(self, name, metadata_fields, inputs, classes):
        rng = torch.Generator().manual_seed(0)
        self.dataset_name, self.metadata_fields = name, metadata_fields
        self.split_dict = {"train": 0, "val": 1, "test": 2}
        self.parts = {}
        for part in self.split_dict:
            metadata = torch.randint(0, 2, (12, len(metadata_fields)), generator=rng)
            y = torch.randn(12, generator=rng) if classes == 0 else torch.arange(12) % classes
            if "y" in metadata_fields:
                metadata[:, metadata_fields.index("y")] = y
            self.parts[part] = Subset([inputs(row) for row in range(12)], y, metadata)

    def get_subset(self, part):
        return self.parts[part]


@pytest.fixture
def wilds_package(monkeypatch, tmp_path):
    """A stand-in for the package, whose data sets are generated."""
    from PIL import Image

    def picture(row):
        return Image.fromarray(np.full((10, 10, 3), 20 * row, np.uint8))

    def get_dataset(dataset, root_dir, download):
        assert not download
        assert root_dir == str(tmp_path / "wilds")
        if dataset == "civilcomments":
            fields = [*IDENTITIES, "identity_any", "y", "from_source_domain"]
            return StandIn(dataset, fields, lambda row: f"word{row % 3} and word{row % 2}", 2)
        if dataset == "poverty":
            return StandIn(dataset, ["urban", "y", "country"], lambda row: torch.full((8, 4, 4), float(row)), 0)
        fields = {"fmow": ["region", "year", "y"], "iwildcam": ["location", "y"]}.get(dataset, ["hospital", "y"])
        return StandIn(dataset, fields, picture, 3)

    (tmp_path / "wilds").mkdir()
    package = types.ModuleType("wilds")
    package.get_dataset = get_dataset
    monkeypatch.setitem(sys.modules, "wilds", package)
    monkeypatch.setenv("SHIFTPROOF_DATA", str(tmp_path))


def test_wilds_images_are_read_with_their_official_splits_and_groups(wilds_package):
    data = load("wilds:name=camelyon17", size=6)
    assert list(data.splits) == ["train", "val", "test"]
    assert data.train.x.shape == (12, 3, 6, 6)
    assert data.environment == "hospital"
    assert set(data.env_names_of("train")) == {"hospital 0", "hospital 1"}
    assert data.num_classes == 3
    assert data.metric == "accuracy"
    assert len(load("wilds", size=4, most=5).train) == 5
    years = load("wilds:name=fmow", size=4)
    assert set(years.env_names_of("train")) <= {f"region {r}, year {t}" for r in (0, 1) for t in (0, 1)}
    assert set(years.env_names_of("test")) == {"region 0", "region 1"}
    assert years.metric == "worst_group"
    assert load("wilds:name=iwildcam", size=4).metric == "macro_f1"


def test_wilds_tensors_and_texts_are_read_too(wilds_package):
    poverty = load("wilds:name=poverty")
    assert poverty.task == "regression"
    assert poverty.train.x.shape == (12, 8, 4, 4)
    assert set(poverty.env_names_of("test")) == {"urban 0", "urban 1"}
    comments = load("wilds:name=civilcomments")
    named = comments.env_names_of("train")
    assert len(named) == 18
    assert len(comments.train) >= 12  # a comment that mentions three identities is there three times
    labels = [int(named[e].rpartition(" ")[2]) for e in comments.train.env.tolist()]
    assert labels == comments.train.y.tolist()


def test_wilds_without_its_package_or_with_a_wrong_name_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "wilds", None)
    with pytest.raises(ShiftproofError, match="needs the package 'wilds'"):
        load("wilds:name=rxrx1")
    with pytest.raises(ShiftproofError, match="one of amazon, camelyon17, civilcomments"):
        load("wilds:name=imagenet")
    assert set(KNOWN) == {"amazon", "camelyon17", "civilcomments", "fmow", "iwildcam", "poverty", "rxrx1"}
