"""Measures as they are called in a sentence."""

from __future__ import annotations

_METRICS = {
    "accuracy": "accuracy",
    "roc_auc": "ROC AUC",
    "mcc": "Matthews correlation",
    "macro_f1": "macro F1",
    "worst_group": "accuracy in the worst environment",
    "percentile10": "10th percentile of the accuracy over environments",
    "pearson": "Pearson correlation",
    "mse": "mean squared error",
    "rmse": "RMSE",
    "mae": "mean absolute error",
    "r2": "R2",
    "spearman": "Spearman correlation",
    "average_precision": "average precision",
    "balanced_accuracy": "balanced accuracy",
    "calibration_error": "calibration error",
    "loss": "task loss",
}


def metric_name(metric: str, task: str = "") -> str:
    """A metric as it is called in a sentence."""
    name = _METRICS.get(metric, metric)
    return name.replace("accuracy", "Pearson correlation") if task == "regression" else name
