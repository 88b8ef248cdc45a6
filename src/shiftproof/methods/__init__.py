"""A model together with the losses it minimises, one file a method.

>>> import shiftproof as sp
>>> run = sp.fit("vrex", sp.load("colored-digits"), penalty=100.0, epochs=50)   # doctest: +SKIP

`erm` is plain training, `oracle` the same where the data do not move (`oracle-xgnn`: an interpretable GNN there);
`irm`, `vrex`, `irmx`, `ib-irm` and `groupdro` use environments (the data set's own, or a random partition), as do
`coral`, `dann`, `cdann`, `fishr`, `fish` and `lisa`; `eiil` infers them; `cnc` contrasts a plain model's mistakes. On
graphs, `ciga-v1` and `ciga-v2` find the invariant subgraph, `gala` also where a shortcut is stronger; `xgnn`, `dir`,
`gib`, `asap`, `grea`, `cal`, `gsat`, `disc` and `gil` find one by other means, `contrast` finds none, and `moleood`
infers environments. For graphs that grow, `wl-kernel`, `gc-kernel` and the `gamma` methods count subgraphs, and `k-gnn`
passes messages between sets of nodes. On one vector a sample (fingerprints
and descriptors of molecules, rows of a table) stand `forest`, `boosting`, `linear`, `tanimoto-svm` and `tanimoto-gp`.
`blend` and `ensemble` predict the mean of several methods, or of one trained several times; `prior` and `size` are what
any method must beat. On point clouds
`lri-bernoulli` and `lri-gaussian` find points by noise. Explainers of plain models that are methods too are in
`shiftproof.explanations.algorithms`. `Method` is the class to derive your own from.
"""

from shiftproof.methods.asap import ASAP
from shiftproof.methods.assistant import EnvironmentAssistant, ProxyTable
from shiftproof.methods.base import DataShape, Method, Network
from shiftproof.methods.blend import Blend, Ensemble
from shiftproof.methods.boosting import Boosting
from shiftproof.methods.cal import CAL
from shiftproof.methods.ciga import CIGA, XGNN, CIGAv1, CIGAv2
from shiftproof.methods.cnc import CNC
from shiftproof.methods.composite import Composite
from shiftproof.methods.contrast import Contrast
from shiftproof.methods.coral import CORAL
from shiftproof.methods.dann import CDANN, DANN
from shiftproof.methods.dir import DIR
from shiftproof.methods.disc import DisC
from shiftproof.methods.eerm import EERM
from shiftproof.methods.eiil import EIIL
from shiftproof.methods.erm import ERM
from shiftproof.methods.explanation import Explanation
from shiftproof.methods.fish import Fish
from shiftproof.methods.fishr import Fishr
from shiftproof.methods.forest import Forest
from shiftproof.methods.gala import GALA
from shiftproof.methods.gamma import GammaGIN, GammaOneHot, GammaRPGIN
from shiftproof.methods.gib import GIB
from shiftproof.methods.gil import GIL
from shiftproof.methods.gmt import GMTLin, GMTSimulated
from shiftproof.methods.gmt_sam import DECODERS, GMTSam, GSATMin0
from shiftproof.methods.graphlet_kernel import GCKernel
from shiftproof.methods.grea import GREA
from shiftproof.methods.groupdro import GroupDRO
from shiftproof.methods.gsat import GSAT
from shiftproof.methods.interpretable import InterpretableMethod
from shiftproof.methods.irm import IBIRM, IRM, IRMX
from shiftproof.methods.k_gnn import KGNN
from shiftproof.methods.linear import Linear
from shiftproof.methods.lisa import LISA
from shiftproof.methods.lri import LRIBernoulli, LRIGaussian
from shiftproof.methods.mixup import Mixup
from shiftproof.methods.moleood import MoleOOD
from shiftproof.methods.oracle import Oracle, OracleXGNN
from shiftproof.methods.srgnn import SRGNN
from shiftproof.methods.tanimoto_gp import TanimotoGP
from shiftproof.methods.tanimoto_svm import TanimotoSVM
from shiftproof.methods.trivial import Prior, Size
from shiftproof.methods.vector_method import VectorMethod
from shiftproof.methods.vrex import VREx
from shiftproof.methods.wl_kernel import WLKernel

__all__ = [
    "ASAP",
    "CAL",
    "CDANN",
    "CIGA",
    "CNC",
    "CORAL",
    "DANN",
    "DECODERS",
    "DIR",
    "EERM",
    "EIIL",
    "ERM",
    "GALA",
    "GIB",
    "GIL",
    "GREA",
    "GSAT",
    "IBIRM",
    "IRM",
    "IRMX",
    "KGNN",
    "LISA",
    "SRGNN",
    "XGNN",
    "Blend",
    "Boosting",
    "CIGAv1",
    "CIGAv2",
    "Composite",
    "Contrast",
    "DataShape",
    "DisC",
    "Ensemble",
    "EnvironmentAssistant",
    "Explanation",
    "Fish",
    "Fishr",
    "Forest",
    "GCKernel",
    "GMTLin",
    "GMTSam",
    "GMTSimulated",
    "GSATMin0",
    "GammaGIN",
    "GammaOneHot",
    "GammaRPGIN",
    "GroupDRO",
    "InterpretableMethod",
    "LRIBernoulli",
    "LRIGaussian",
    "Linear",
    "Method",
    "Mixup",
    "MoleOOD",
    "Network",
    "Oracle",
    "OracleXGNN",
    "Prior",
    "ProxyTable",
    "Size",
    "TanimotoGP",
    "TanimotoSVM",
    "VREx",
    "VectorMethod",
    "WLKernel",
]
