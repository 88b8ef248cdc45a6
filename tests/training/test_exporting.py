"""A model as a file that runs elsewhere gives what the run gives."""

import numpy as np
import pytest
import torch

import shiftproof as sp


@pytest.fixture(scope="module")
def run():
    return sp.fit("vrex", "two-bit:per_env=40", epochs=1, widths=(4,))


def test_onnx_of_rows_takes_batches_of_any_length(run, tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    path = run.export(tmp_path / "model.onnx")
    session = runtime.InferenceSession(str(path))
    rows = sp.load("two-bit:per_env=40").test
    for count in (1, 2, 7):
        found = session.run(None, {"x": rows.x[:count].numpy()})[0]
        assert np.allclose(found, run.logits(rows[:count]).numpy(), atol=1e-5)


def test_torchs_own_program_is_read_back(run, tmp_path):
    path = run.export(tmp_path / "model.pt2")
    rows = sp.load("two-bit:per_env=40").test
    found = torch.export.load(path).module()(rows.x[:5])
    assert torch.allclose(found, run.logits(rows[:5]), atol=1e-5)


@pytest.mark.slow
def test_graphs_are_exported_for_one_shape(tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    data = sp.load("ba-2motifs:graphs=20")
    run = sp.fit("erm", data, epochs=1, hidden=8, conv="gcn")
    one = data.test[:1]
    path = run.export(tmp_path / "graphs.onnx", example=one)
    batch = one.whole()
    session = runtime.InferenceSession(str(path))
    given = dict(zip([i.name for i in session.get_inputs()], (batch.x, batch.edge_index, batch.batch), strict=False))
    found = session.run(None, {name: tensor.numpy() for name, tensor in given.items()})[0]
    assert np.allclose(found, run.logits(one).numpy(), atol=1e-5)


def test_what_cannot_be_exported_is_one_sentence(run, tmp_path):
    with pytest.raises(sp.ShiftproofError, match=r"must end in .onnx or .pt2"):
        run.export(tmp_path / "model.h5")
    graphs = sp.fit("erm", "ba-2motifs:graphs=20", epochs=1, hidden=4)
    with pytest.raises(sp.ShiftproofError, match="give a GraphSet of that shape as example="):
        graphs.export(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())
