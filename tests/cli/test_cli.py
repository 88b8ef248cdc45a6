"""The command from outside: what it prints, what it writes, and its exit status.

Most tests call `main` in this process, as the console script does; those about killing and starting use a real one.
"""

import contextlib
import csv
import gzip
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import shiftproof as sp
from shiftproof import cli
from shiftproof.data.storage import save_dataset
from shiftproof.methods import ERM
from shiftproof.registry import KINDS, datasets, methods

BITS = "two-bit:per_env=30"
GRAPHS = "spmotif-struc:train_per_class=6,val_per_class=3,test_per_class=3"
FAST = ["--set", "epochs=2", "--set", "widths=(4,)"]


@pytest.fixture
def shiftproof(monkeypatch, capsys, tmp_path):
    """Run the command with these words in an empty folder: (status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["shiftproof", *map(str, words)])
        capsys.readouterr()
        try:
            cli.main()
            status = 0
        except SystemExit as end:
            status = end.code or 0
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


def assert_one_sentence(result: tuple[int, str, str], said: str, status: int = 2) -> None:
    code, out, err = result
    assert code == status, err
    assert err.count("\n") == 1, err
    assert err.startswith("shiftproof: ")
    assert said in err
    assert "Traceback" not in out + err


# list


def test_everything_that_is_registered_is_listed(shiftproof):
    status, out, _ = shiftproof("list", "--json")
    found = json.loads(out)
    assert status == 0
    assert set(found) == set(KINDS)
    assert [entry["name"] for entry in found["methods"]] == [entry.name for entry in methods]
    assert [entry["name"] for entry in found["datasets"]] == [entry.name for entry in datasets]
    irm = next(entry for entry in found["methods"] if entry["name"] == "irm")
    assert irm["options"]["penalty"] == 1.0
    assert irm["works on"] == ["graphs", "tensors"]
    assert "network" not in irm["options"]


@pytest.mark.parametrize("kind", [None, *KINDS])
def test_each_kind_is_listed_for_people(shiftproof, kind):
    status, out, err = shiftproof("list", *([kind] if kind else []))
    assert (status, err) == (0, "")
    for name in [kind] if kind else ["methods", "datasets"]:
        for entry in KINDS[name]:
            assert entry.name in out
    if kind and not list(KINDS[kind]):
        assert f"{kind}: none yet" in out


def test_every_command_explains_itself(shiftproof):
    status, out, _ = shiftproof("--help")
    assert status == 0
    for command in ("demo", "list", "fit", "predict", "report"):
        assert command in out
        assert shiftproof(command, "--help")[0] == 0


# fit


def test_methods_and_seeds_make_a_table_and_a_folder_each(shiftproof, tmp_path):
    words = ["fit", BITS, "--method", "erm", "-m", "irm", "--seeds", 2, "--first-seed", 3, "--out", "runs", *FAST]
    status, out, err = shiftproof(*words, "--table", "table.json")
    assert (status, err) == (0, "")
    assert "erm" in out
    assert "irm" in out
    assert "shiftproof report runs" in out
    folders = sorted(str(path.parent.relative_to(tmp_path)) for path in tmp_path.rglob("metrics.json"))
    assert folders == [f"runs/{method}/seed-{seed}" for method in ("erm", "irm") for seed in (3, 4)]
    table = json.loads(Path("table.json").read_text())
    assert table[
        "command"
    ] == f"shiftproof fit {BITS} --method erm -m irm --seeds 2 --first-seed 3 --out runs --set " + (
        "epochs=2 --set 'widths=(4,)' --table table.json"
    )
    assert [(row["method"], row["seeds"]) for row in table["rows"]] == [("erm", 2), ("irm", 2)]
    assert table["rows"][0]["variant"] == {"epochs": "2", "widths": "(4,)"}


def test_json_is_all_that_is_printed_for_machines(shiftproof):
    status, out, err = shiftproof("fit", BITS, "-m", "erm", *FAST, "--json")
    rows = json.loads(out)
    assert (status, err) == (0, "")
    assert rows[0]["dataset"] == BITS
    values = json.loads(Path("runs/erm/seed-0/metrics.json").read_text())["metrics"]["test"]
    assert rows[0]["values"] == [values[rows[0]["metric"]]]


def test_a_grid_tries_every_combination(shiftproof, tmp_path):
    grid = ["--grid", "penalty=1,10", "--grid", "widths=(4,),(5,5)"]
    status, out, _ = shiftproof("fit", BITS, "-m", "irm", "--set", "epochs=1", *grid, "--json")
    assert status == 0
    found = [(row["variant"]["penalty"], row["variant"]["widths"]) for row in json.loads(out)]
    assert sorted(found) == [("1", "(4,)"), ("1", "(5,5)"), ("10", "(4,)"), ("10", "(5,5)")]
    configs = [json.loads(path.read_text()) for path in tmp_path.rglob("config.json")]
    assert sorted((c["options"]["penalty"], c["network"]["widths"]) for c in configs) == [
        (1.0, [4]),
        (1.0, [5, 5]),
        (10.0, [4]),
        (10.0, [5, 5]),
    ]


def test_another_metric_is_reported(shiftproof):
    _, out, _ = shiftproof("fit", BITS, "-m", "erm", *FAST, "--metric", "mcc", "--json")
    assert json.loads(out)[0]["metric"] == "mcc"
    _, out, _ = shiftproof("fit", BITS, "-m", "erm", *FAST, "--metric", "mcc", "--resume")
    assert "test mcc" in out


def test_the_environment_is_chosen_by_its_column(shiftproof):
    status, out, _ = shiftproof("fit", GRAPHS, "-m", "vrex", "--group", "base", "--set", "epochs=1", "--json")
    assert status == 0
    assert json.loads(out)[0]["variant"]["group"] == "base"
    assert json.loads(Path("runs/vrex/seed-0/metrics.json").read_text())["metrics"]["test"]["environment"] == "base"


def test_a_finished_run_is_kept_with_resume_and_refused_without(shiftproof):
    words = ["fit", BITS, "-m", "erm", *FAST]
    assert shiftproof(*words)[0] == 0
    files = {path: path.stat().st_mtime_ns for path in Path("runs").rglob("*.*")}
    assert_one_sentence(shiftproof(*words), "runs/erm/seed-0 already holds a run; give --resume to keep it")
    assert shiftproof(*words, "--resume")[0] == 0
    assert {path: path.stat().st_mtime_ns for path in Path("runs").rglob("*.*")} == files
    assert_one_sentence(shiftproof(*words, "--resume", "--set", "lr=0.5"), "'training.lr' is 0.001 there and 0.5 now")


# predict


@pytest.fixture
def run_folder(tmp_path):
    sp.fit("erm", BITS, epochs=1, widths=(4,), out=tmp_path / "run")
    return tmp_path / "run"


def test_predictions_are_written_as_csv_and_as_json(shiftproof, run_folder):
    status, out, _ = shiftproof("predict", run_folder, BITS, "--out", "p.csv")
    assert (status, out) == (0, "90 predictions in p.csv\n")
    assert json.loads(shiftproof("predict", run_folder, BITS, "--out", "p.json", "--json")[1]) == {
        "samples": 90,
        "file": "p.json",
    }
    rows = list(csv.DictReader(Path("p.csv").read_text().splitlines()))
    same = json.loads(Path("p.json").read_text())
    run, data = sp.Run.load(run_folder), sp.load(BITS)
    probabilities = run.predict(data.test).sigmoid()
    assert list(rows[0]) == ["index", "prediction", "probability", "confidence", "label"]
    assert [row["index"] for row in same] == data.test.index.tolist()
    assert [row["label"] for row in same] == data.test.y.tolist()
    assert [row["probability"] for row in same] == pytest.approx(probabilities.tolist())
    assert [row["prediction"] for row in same] == (probabilities > 0.5).long().tolist()
    assert [float(row["probability"]) for row in rows] == [row["probability"] for row in same]
    assert shiftproof("predict", run_folder, BITS, "--out", "t.csv", "--split", "train")[0] == 0
    assert len(Path("t.csv").read_text().splitlines()) == 1 + len(data.train)


def test_several_classes_have_a_probability_each(shiftproof, tmp_path):
    sp.fit("erm", GRAPHS, epochs=1, hidden=4, out=tmp_path / "run")
    assert shiftproof("predict", "run", GRAPHS, "--out", "p.json")[0] == 0
    rows = json.loads(Path("p.json").read_text())
    assert len(rows) == 9
    for row in rows:
        chances = [row[f"probability_{k}"] for k in range(3)]
        assert sum(chances) == pytest.approx(1.0, abs=1e-5)
        assert row["prediction"] == chances.index(max(chances))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere", BITS, "--out", "p.csv"], "nowhere is not a folder"),
        (["run", BITS, "--out", "p.txt"], "'p.txt' must end in .csv or .json"),
        (["run", BITS, "--out", "p.csv", "--split", "tset"], "unknown split of 'two-bit' 'tset'; did you mean 'test'?"),
        (["run", GRAPHS, "--out", "p.csv"], "the run was trained on tensors with features (2,), not graphs with (4,)"),
        (["run", "two-bits", "--out", "p.csv"], "unknown data set 'two-bits'; did you mean 'two-bit'?"),
    ],
)
def test_predictions_that_cannot_be_made_are_one_sentence(shiftproof, run_folder, words, said):
    assert_one_sentence(shiftproof("predict", *words), said)
    assert not list(Path().glob("p.*"))


@pytest.mark.parametrize("name", ["weights.safetensors", "config.json", "metrics.json"])
def test_a_damaged_run_is_one_sentence(shiftproof, run_folder, name):
    path = run_folder / name
    path.write_bytes(path.read_bytes()[:30])
    assert_one_sentence(shiftproof("predict", run_folder, BITS, "--out", "p.csv"), name)


# what a user got wrong


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["list", "method"], "unknown kind 'method'; did you mean 'methods'?"),
        (["fit", BITS, "-m", "imr"], "unknown method 'imr'; did you mean 'irm'?"),
        (["fit", BITS, "-m", "erm", "-m", "vrx"], "unknown method 'vrx'; did you mean 'vrex'?"),
        (["fit", "two-bot", "-m", "erm"], "unknown data set 'two-bot'; did you mean 'two-bit'?"),
        (["fit", "two-bit:alfa=1", "-m", "erm"], "unknown option of data set 'two-bit' 'alfa'; did you mean 'alpha'?"),
        (["fit", "two-bit:alpha=x", "-m", "erm"], "option 'alpha' of data set 'two-bit' takes float, not 'x'"),
        (["fit", "two-bit:alpha", "-m", "erm"], "'alpha' in 'two-bit:alpha' is not of the form key=value"),
        (["fit", BITS, "-m", "irm", "--set", "penalti=1"], "'penalti'; did you mean 'penalty'?"),
        (["fit", BITS, "-m", "irm", "--set", "epochs"], "'epochs' in '--set' is not of the form key=value"),
        (["fit", BITS, "-m", "irm", "--set", "epochs=few"], "option 'epochs' of 'irm' takes int, not 'few'"),
        (
            ["fit", BITS, "-m", "irm", "--set", "estimator=ful"],
            "takes full or halves or cross, not 'ful'; did you mean",
        ),
        (["fit", BITS, "-m", "irm", "--set", "selection=vall"], "did you mean 'val'?"),
        (["fit", BITS, "-m", "irm", "--set", "track=('tset',)"], "unknown split to track 'tset'; did you mean 'test'?"),
        (["fit", BITS, "-m", "irm", "--grid", "penalti=1,2"], "'penalti'; did you mean 'penalty'?"),
        (["fit", BITS, "-m", "irm", "--group", "colour"], "unknown environment column 'colour'"),
        (["fit", BITS, "-m", "irm", "--metric", "acuracy"], "unknown metric 'acuracy'; did you mean 'accuracy'?"),
        (["fit", BITS, "-m", "irm", "--metric", "pearson"], "metric 'pearson' does not fit a binary task"),
        (["fit", BITS, "-m", "irm", "--device", "gpu"], "'gpu' is not a device"),
        (["fit", BITS, "-m", "irm", "--workers", "0"], "at least one worker is needed, not 0"),
        (["fit", GRAPHS, "-m", "erm", "--set", "conv=ginn"], "unknown graph layer 'ginn'; did you mean 'gin'?"),
        (["fit", "some/folder", "-m", "erm"], "there is no file or folder 'some/folder'"),
        (["report", "nowhere"], "nowhere"),
    ],
)
def test_a_mistake_is_one_sentence_with_the_nearest_name(shiftproof, words, said):
    assert_one_sentence(shiftproof(*words), said)
    assert not Path("runs").exists()


@pytest.mark.parametrize("method", [e.name for e in methods if e.tags and not {"graphs", "tensors"} <= {*e.tags}])
def test_a_method_for_one_kind_of_data_refuses_the_other(shiftproof, method):
    wrong, said = (BITS, "works on graphs") if "graphs" in methods[method].tags else (GRAPHS, "works on plain tensors")
    assert_one_sentence(shiftproof("fit", wrong, "-m", method), f"method '{method}' {said}")


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    return save_dataset(sp.load(GRAPHS), tmp_path_factory.mktemp("stored") / "data")


def nan_feature(tensors):
    tensors["x"][7, 0] = float("nan")


def far_label(tensors):
    tensors["y"][2] = 9


def missing_node(tensors):
    tensors["edge_index"][1, 0] = tensors["x"].shape[0] + 5


def short_labels(tensors):
    tensors["y"] = tensors["y"][:-1].clone()


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (nan_feature, "split 'train': node features hold NaN or infinity (graph 0, row 7)"),
        (far_label, "split 'train': labels must be 0 to 2, but graph 2 has 9"),
        (missing_node, "of graph 0 points to a node that does not exist"),
        (short_labels, "'y' has 17 rows, not 18"),
    ],
)
def test_data_that_cannot_be_right_are_one_sentence(shiftproof, stored, tmp_path, harm, said):
    folder = tmp_path / "data"
    shutil.copytree(stored, folder)
    assert shiftproof("fit", folder, "-m", "erm", "--set", "epochs=1", "--set", "hidden=4", "--out", "good")[0] == 0
    tensors = load_file(folder / "train.safetensors")
    harm(tensors)
    save_file(tensors, folder / "train.safetensors")
    assert_one_sentence(shiftproof("fit", folder, "-m", "erm"), said)
    assert not Path("runs").exists()


@pytest.mark.parametrize("name", ["train.safetensors", "dataset.json"])
def test_a_truncated_data_folder_is_one_sentence(shiftproof, stored, tmp_path, name):
    folder = tmp_path / "cut"
    shutil.copytree(stored, folder)
    path = folder / name
    path.write_bytes(path.read_bytes()[:50])
    assert_one_sentence(shiftproof("fit", folder, "-m", "erm"), name)


def test_a_truncated_mnist_file_is_one_sentence(shiftproof, tmp_path, monkeypatch):
    monkeypatch.setenv("SHIFTPROOF_DATA", str(tmp_path / "files"))
    (tmp_path / "files" / "mnist").mkdir(parents=True)
    images = struct.pack(">BBBBIII", 0, 0, 8, 3, 60000, 28, 28) + bytes(28 * 28 * 5)
    labels = struct.pack(">BBBBI", 0, 0, 8, 1, 60000) + bytes(60000)
    for part in ("train", "t10k"):
        (tmp_path / f"files/mnist/{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
        (tmp_path / f"files/mnist/{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    assert_one_sentence(shiftproof("fit", "cmnist", "-m", "erm"), "train-images-idx3-ubyte.gz is cut short")
    path = tmp_path / "files/mnist/train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:40])
    assert_one_sentence(shiftproof("fit", "cmnist", "-m", "erm"), "train-images-idx3-ubyte.gz is cut short or damaged")


def test_a_truncated_tu_file_is_one_sentence(shiftproof, tmp_path, monkeypatch):
    monkeypatch.setenv("SHIFTPROOF_DATA", str(tmp_path / "files"))
    folder = tmp_path / "files" / "TOY"
    folder.mkdir(parents=True)
    (folder / "TOY_A.txt").write_text("1, 2\n2, 1\n2, 3\n3,")
    (folder / "TOY_graph_indicator.txt").write_text("1\n1\n1\n2\n")
    (folder / "TOY_graph_labels.txt").write_text("0\n1\n")
    assert_one_sentence(shiftproof("fit", "tu:name=TOY", "-m", "erm"), "TOY_A.txt")
    (folder / "TOY_A.txt").write_text("1, 2\n2, 1\n2, 9\n")
    assert_one_sentence(shiftproof("fit", "tu:name=TOY", "-m", "erm"), "TOY")


@pytest.mark.parametrize("name", ["checkpoint.safetensors", "config.json"])
def test_a_corrupt_or_foreign_checkpoint_is_one_sentence_and_stays_as_it_is(shiftproof, monkeypatch, name):
    words = ["fit", BITS, "-m", "erm", *FAST, "--set", "checkpoint_seconds=0"]
    with monkeypatch.context() as patch:
        patch.setattr("shiftproof.training.loop.Loop._conclude", lambda self: sys.exit(9))  # killed at the end
        assert shiftproof(*words)[0] == 9
    path = Path("runs/erm/seed-0") / name
    for wrong in (path.read_bytes()[:-20], b"something else"):
        path.write_bytes(wrong)
        assert_one_sentence(shiftproof(*words, "--resume"), name)
        assert path.read_bytes() == wrong
        assert not Path("runs/erm/seed-0/metrics.json").exists()


def test_diverged_training_ends_with_status_one_and_one_sentence(shiftproof):
    words = ["--set", "optimizer=sgd", "--set", "lr=1e30", "--set", "epochs=20", "--set", "batch_size=8"]
    result = shiftproof("fit", BITS, "-m", "erm", *words)
    assert_one_sentence(result, "the last good checkpoint is in runs/erm/seed-0", status=1)
    assert "became" in result[2]
    assert Path("runs/erm/seed-0/checkpoint.safetensors").exists()


def test_a_folder_that_cannot_be_made_is_one_sentence(shiftproof):
    Path("file").write_text("")
    assert_one_sentence(shiftproof("fit", BITS, "-m", "erm", *FAST, "--out", "file/runs"), "file/runs", status=1)


def test_a_mistake_of_ours_is_not_hidden(shiftproof, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(ERM, "losses", broken)
    with pytest.raises(ZeroDivisionError):
        shiftproof("fit", BITS, "-m", "erm", *FAST)


@pytest.mark.parametrize(("asked", "compiled"), [((), False), (("--compile",), True), (("--fuse",), "fused")])
def test_how_the_step_is_run_reaches_the_training(shiftproof, monkeypatch, asked, compiled):
    seen = []
    monkeypatch.setattr("shiftproof.bench.run_jobs", lambda jobs, **_: seen.extend(jobs) or [])
    monkeypatch.setattr("shiftproof.bench.rows_of", lambda jobs, metric: [])
    assert shiftproof("fit", BITS, "-m", "erm", *FAST, *asked)[0] == 0
    assert [job.compile for job in seen] == [compiled]


def test_products_in_tf32_are_written_beside_a_result(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["shiftproof", "bench", "pair-cmnist"])
    assert cli.options.command_line() == "shiftproof bench pair-cmnist"
    monkeypatch.setenv("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1")
    assert cli.options.command_line() == "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1 shiftproof bench pair-cmnist"


# real processes


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "shiftproof.cli", *map(str, words)]


ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


def test_the_command_starts_as_a_process_of_its_own(tmp_path):
    done = subprocess.run(command("fit", "two-bitt", "-m", "erm"), capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "shiftproof: unknown data set 'two-bitt'; did you mean 'two-bit'?\n"


LONG = ["fit", "two-bit:per_env=400", "-m", "eiil", "--json", "--set", "checkpoint_seconds=0"]
LONG += ["--set", "batch_size=16", "--set", "epochs=12", "--set", "reference_epochs=12"]
LONG += ["--set", "inference_steps=50", "--set", "patience=none", "--set", "widths=(8,)"]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    subprocess.run(command(*LONG), cwd=folder, env=ONE_THREAD, capture_output=True, check=True)
    return folder / "runs" / "eiil" / "seed-0"


@pytest.mark.parametrize("moment", ["stage 0", "training"])
def test_killed_in_the_middle_and_resumed_the_metrics_are_those_of_an_uninterrupted_run(
    tmp_path, uninterrupted, moment
):
    """`kill -9` while it trains, then the same command with `--resume`."""
    run = tmp_path / "runs" / "eiil" / "seed-0"
    checkpoint = (run / "reference" if moment == "stage 0" else run) / "checkpoint.safetensors"
    process = subprocess.Popen(command(*LONG), cwd=tmp_path, env=ONE_THREAD)
    seen: set[int] = set()
    until = time.monotonic() + 120
    while len(seen) < 3 and process.poll() is None and time.monotonic() < until:  # some epochs into it
        with contextlib.suppress(FileNotFoundError):
            seen.add(checkpoint.stat().st_mtime_ns)
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (run / "metrics.json").exists(), "it was killed too late to show anything"
    resumed = subprocess.run(command(*LONG, "--resume"), cwd=tmp_path, env=ONE_THREAD, capture_output=True)
    assert resumed.returncode == 0, resumed.stderr
    for name in ("metrics.json", "history.json", "config.json", "reference/metrics.json"):
        assert (run / name).read_bytes() == (uninterrupted / name).read_bytes(), name
    one, other = (load_file(folder / "weights.safetensors") for folder in (uninterrupted, run))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_runs_finished_so_far_are_collected_without_training(shiftproof, tmp_path):
    few = ["bench", "ciga-table1", "--smoke", "--out", tmp_path, "--only", "erm"]
    folder = tmp_path / "ciga-table1-smoke"
    status, _, err = shiftproof(*few, "--collect")
    assert status == 2
    assert err == f"shiftproof: {folder} holds no finished run of 'ciga-table1' to collect; leave out --collect\n"
    assert shiftproof(*few)[0] == 0
    kept = json.loads((folder / "ciga-table1.json").read_text())
    shutil.rmtree(folder / "spmotif-struc_bias=0.9")
    assert shiftproof(*few, "--collect")[0] == 0
    again = json.loads((folder / "ciga-table1.json").read_text())
    assert again["rows"] == [row for row in kept["rows"] if row["dataset"] != "spmotif-struc:bias=0.9"]
    assert again["command"] == kept["command"]
    assert again["commit"] == kept["commit"]


def test_part_of_a_recipe_is_a_table_of_its_own_name(shiftproof, tmp_path):
    shutil.copytree(finished(shiftproof, tmp_path), tmp_path / "ciga-table1")
    part = ["bench", "ciga-table1", "--only", "erm", "--collect", "--out", tmp_path, "--results", tmp_path / "results"]
    assert shiftproof(*part)[0] == 0
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["ciga-table1-only-erm.json"]
    table = json.loads((tmp_path / "results" / "ciga-table1-only-erm.json").read_text())
    assert {row["method"] for row in table["rows"]} == {"erm"}
    assert "--only erm" in table["command"]
    assert "--collect" not in table["command"]


def finished(shiftproof, tmp_path):
    """A folder of small finished runs of ERM."""
    assert shiftproof("bench", "ciga-table1", "--smoke", "--out", tmp_path, "--only", "erm")[0] == 0
    return tmp_path / "ciga-table1-smoke"
