"""Score functions of triples.

A built-in model is a query, computed from the known end of a triple (the anchor) and its
relation, and a similarity of the query with candidates for the other end. Complex rows hold all
real parts, then all imaginary parts. A model of one's own is any PyTorch function, see
`CustomModel`.
"""

from __future__ import annotations

from outercore.embedding.gradients.kernels import Chunk, Side
from outercore.embedding.gradients.models.base import Model, QueryModel, RowGradients, Start
from outercore.embedding.gradients.models.bilinear import ComplEx, DistMult, Dot, SimplE
from outercore.embedding.gradients.models.build import build_model
from outercore.embedding.gradients.models.custom import CustomModel, ScoreFunction
from outercore.embedding.gradients.models.distance import RotatE, TransE

__all__ = [
    "Chunk",
    "ComplEx",
    "CustomModel",
    "DistMult",
    "Dot",
    "Model",
    "QueryModel",
    "RotatE",
    "RowGradients",
    "ScoreFunction",
    "Side",
    "SimplE",
    "Start",
    "TransE",
    "build_model",
]
