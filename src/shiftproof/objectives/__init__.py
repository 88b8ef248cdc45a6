"""Objectives: plain functions of predictions, labels and environments, each next to its formula.

A penalty takes what a model has put out and says how far it is from a principle: the same optimal scale of the logits
in every environment (`irm_penalty`), equal risks (`vrex_penalty`), equal gradients (`iga_penalty`), equal gradient
variance (`fishr_penalty`), calibration everywhere (`clove_penalty`), equal feature moments (`coral_penalty`),
same-class representations close together (`supervised_contrastive`). Every function returns one differentiable scalar,
unless it says otherwise, and nothing is weighted here: add the terms up yourself, or hand them to `shiftproof.pareto`.

`sample_losses` turns logits into one loss a sample, `env_risks` into one risk an environment together with the number
of its samples; penalties that take those `counts` leave out an environment that is absent from the batch. The task is
one of `multiclass`, `binary`, `multilabel` (NaN: unknown) and `regression`. The inner gradients of IRM and Fishr are in
closed form, so one backward pass is enough, and there is no loop over samples and no wait for the device.

    >>> import torch
    >>> from shiftproof.objectives import env_risks, irm_penalty, sample_losses, vrex_penalty
    >>> logits = torch.tensor([2.0, -1.0, 0.5, 3.0], requires_grad=True)
    >>> y, env = torch.tensor([1, 0, 0, 1]), torch.tensor([0, 0, 1, 1])
    >>> risks, counts = env_risks(sample_losses(logits, y, "binary"), env, num_envs=2)
    >>> loss = risks.mean() + 10 * irm_penalty(logits, y, env, 2, "binary") + vrex_penalty(risks, counts)
    >>> loss.backward()
    >>> [round(r, 4) for r in risks.tolist()]
    [0.2201, 0.5113]
"""

from shiftproof.objectives.attention import PriorSchedule, attention_information
from shiftproof.objectives.bottleneck import ib_penalty
from shiftproof.objectives.clove import clove_penalty, mmce
from shiftproof.objectives.contrastive import pair_contrast, supervised_contrastive
from shiftproof.objectives.coral import coral_penalty
from shiftproof.objectives.environments import infer_environments, random_environments, split_objective
from shiftproof.objectives.fishr import fishr_penalty, head_gradient_variances
from shiftproof.objectives.gala_contrast import proxy_contrast, proxy_pairs
from shiftproof.objectives.gce import generalised_cross_entropy
from shiftproof.objectives.gradient_matching import gradient_matching_penalty
from shiftproof.objectives.gradients import env_gradients
from shiftproof.objectives.groupdro import GroupWeights, worst_risk
from shiftproof.objectives.hinge import hinge
from shiftproof.objectives.iga import iga_penalty
from shiftproof.objectives.irm import dummy_gradients, irm_penalty, nonnegative
from shiftproof.objectives.irmx import irmx_penalty
from shiftproof.objectives.risks import env_risks, logit_gradients, mean_risk, sample_losses
from shiftproof.objectives.segments import env_means, mean_over_present
from shiftproof.objectives.spectral import spectral_decoupling
from shiftproof.objectives.vrex import vrex_penalty

__all__ = [
    "GroupWeights",
    "PriorSchedule",
    "attention_information",
    "clove_penalty",
    "coral_penalty",
    "dummy_gradients",
    "env_gradients",
    "env_means",
    "env_risks",
    "fishr_penalty",
    "generalised_cross_entropy",
    "gradient_matching_penalty",
    "head_gradient_variances",
    "hinge",
    "ib_penalty",
    "iga_penalty",
    "infer_environments",
    "irm_penalty",
    "irmx_penalty",
    "logit_gradients",
    "mean_over_present",
    "mean_risk",
    "mmce",
    "nonnegative",
    "pair_contrast",
    "proxy_contrast",
    "proxy_pairs",
    "random_environments",
    "sample_losses",
    "spectral_decoupling",
    "split_objective",
    "supervised_contrastive",
    "vrex_penalty",
    "worst_risk",
]
