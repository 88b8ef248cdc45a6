"""Attack, defend and audit a graph whose nodes are classified.

- `train_defence`, a classifier trained on the clean graph (`shiftproof list defences`); `predict` and `accuracy` of one
- `train_zoo`, the 38 defences of the published tables; `evaluate` and `aggregate`, their accuracy on attacked graphs
- `adversarial_train`, training on injected nodes; `load_outside`, your own PyG model among the defences
- `attack`, the worst injected nodes or flipped edges within a budget (`shiftproof list attacks`)
- `Budget`, what an attack may do; `Perturbation`, what it did; `verify`, whether the second is within the first
- `node_homophily`, how like its neighbours a node is; `homophily_distance` of two graphs; `certify_linear`, a promise
- `plural_mapping`, injected nodes that do what added edges would; `select_targets`, nodes worth aiming at

Importing this package registers every attack and every defence under its name.
"""

from shiftproof.robustness import defences as _defences  # noqa: F401 - registers them
from shiftproof.robustness.adjacency import Adjacency
from shiftproof.robustness.adversarial import adversarial_train, attacker
from shiftproof.robustness.attacks import attack
from shiftproof.robustness.attacks import modification as _modification  # noqa: F401
from shiftproof.robustness.budget import Budget, Perturbation
from shiftproof.robustness.evaluate import aggregate, evaluate
from shiftproof.robustness.flag import FLAG
from shiftproof.robustness.homophily import edge_homophily, homophily_distance, label_homophily, node_homophily
from shiftproof.robustness.targets import check_targets, select_targets
from shiftproof.robustness.theory.certificate import Certificate, certify_linear
from shiftproof.robustness.theory.mapping import plural_mapping
from shiftproof.robustness.trained_zoo import Zoo, train_zoo
from shiftproof.robustness.training import Trained, accuracy, build_defence, predict, train_defence
from shiftproof.robustness.user_model import OutsideModel, load_outside
from shiftproof.robustness.verify import OverBudget, verify
from shiftproof.robustness.zoo import DefenceSpec, ZooPreset, standard38

__all__ = [
    "FLAG",
    "Adjacency",
    "Budget",
    "Certificate",
    "DefenceSpec",
    "OutsideModel",
    "OverBudget",
    "Perturbation",
    "Trained",
    "Zoo",
    "ZooPreset",
    "accuracy",
    "adversarial_train",
    "aggregate",
    "attack",
    "attacker",
    "build_defence",
    "certify_linear",
    "check_targets",
    "edge_homophily",
    "evaluate",
    "homophily_distance",
    "label_homophily",
    "load_outside",
    "node_homophily",
    "plural_mapping",
    "predict",
    "select_targets",
    "standard38",
    "train_defence",
    "train_zoo",
    "verify",
]
