"""Ways to find out why: masks by gradient, trained explainers, gradients, occlusion, influence over subgraphs.

Importing this package registers those that are also methods (`gnnexplainer`, `pgexplainer`, `graphmask` and the
explainers of point clouds): a plain model is trained, then asked for its reasons.
"""

from shiftproof.explanations.algorithms import point_explainers, posthoc  # noqa: F401
