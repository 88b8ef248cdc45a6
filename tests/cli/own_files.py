"""Small data for the command, and what its refusals look like."""

BITS = "two-bit:per_env=30"
GRAPHS = "spmotif-struc:train_per_class=6,val_per_class=3,test_per_class=3"
FAST = ["--set", "epochs=2", "--set", "widths=(4,)"]


def assert_one_sentence(result: tuple[int, str, str], said: str, status: int = 2) -> None:
    code, out, err = result
    assert code == status, err
    assert err.count("\n") == 1, err
    assert err.startswith("shiftproof: ")
    assert said in err
    assert "Traceback" not in out + err
