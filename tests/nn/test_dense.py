from types import SimpleNamespace

import pytest
import torch

from shiftproof.errors import ShiftproofError
from shiftproof.nn import MLPFeaturizer, SmallCNN, head
from tests.nn.families import assert_close, seeded


def test_the_mlp_is_that_of_coloured_digits():
    net = MLPFeaturizer(392)
    assert sum(p.numel() for p in net.parameters()) == 392 * 256 + 256 + 256 * 256 + 256
    assert net.out_channels == 256
    bound = (6 / (392 + 256)) ** 0.5
    weight = net.layers[0].weight.detach()
    assert float(weight.abs().max()) <= bound
    assert float(weight.abs().max()) > 0.95 * bound
    assert torch.equal(net.layers[0].bias, torch.zeros(256))


def test_featurizers_take_a_tensor_or_a_batch():
    images = torch.randn(3, 2, 14, 14, generator=seeded(0))
    for net in (MLPFeaturizer(392, (8,)), SmallCNN(2)):
        out = net(images)
        assert out.shape == (3, net.out_channels)
        assert torch.equal(out, net(SimpleNamespace(x=images)))


def test_the_mlp_ends_in_a_relu():
    net = MLPFeaturizer(4, (3,), init="default")
    x = torch.randn(5, 2, 2, generator=seeded(0))
    assert_close(net(x), torch.relu(net.layers[0](x.flatten(1))))


def test_the_cnn_has_128_features_whatever_the_size_of_the_image():
    net = SmallCNN(2)
    assert net(torch.zeros(2, 2, 28, 28)).shape == (2, 128)
    assert [c.stride for c in net.convs] == [(1, 1), (2, 2), (1, 1), (1, 1)]
    assert [c.out_channels for c in net.convs] == [64, 128, 128, 128]


def test_images_of_a_batch_do_not_mix():
    net = SmallCNN(1)
    images = torch.randn(3, 1, 8, 8, generator=seeded(0))
    assert_close(net(images)[1:2], net(images[1:2]))


def test_head_is_one_or_two_layers():
    assert isinstance(head(4, 3), torch.nn.Linear)
    deep = head(4, 3, hidden=8)
    assert [type(m).__name__ for m in deep] == ["Linear", "ReLU", "Linear"]
    assert deep(torch.zeros(2, 4)).shape == (2, 3)


def test_unknown_initialisation_is_named():
    with pytest.raises(ShiftproofError, match="did you mean 'xavier'"):
        MLPFeaturizer(4, init="xaver")
