"""Epochs of PyKEEN on numbered triples. Prints one JSON line.

    python benchmarks/peers/pykeen_train.py TRIPLES.npz --model complex --negatives 100
        [--dim 100] [--batch-size 1000] [--threads 2] [--epochs 2] [--seconds 60]

`TRIPLES.npz` has `train` (int64 [m, 3]: head, relation, tail), `entities` and `relations`. Every
triple is compared with `--negatives` separate triples, half of them with another head, half with
another tail; PyKEEN supports no other draw. A run ends within `--seconds`. Its speed counts the
triples from the second batch to the last.
"""

import argparse
import contextlib
import json
import resource
import time
from typing import Any

import numpy as np
import torch
from pykeen.losses import InfoNCELoss, NSSALoss
from pykeen.models import ComplEx, DistMult, Model, RotatE, TransE
from pykeen.training import SLCWATrainingLoop
from pykeen.training.callbacks import TrainingCallback
from pykeen.triples import CoreTriplesFactory

MODELS: dict[str, Any] = {
    "complex": lambda dim: {"cls": ComplEx, "embedding_dim": dim // 2},
    "distmult": lambda dim: {"cls": DistMult, "embedding_dim": dim},
    "transe-1": lambda dim: {"cls": TransE, "embedding_dim": dim, "scoring_fct_norm": 1},
    "transe-2": lambda dim: {"cls": TransE, "embedding_dim": dim, "scoring_fct_norm": 2},
    "rotate": lambda dim: {"cls": RotatE, "embedding_dim": dim // 2},
}


class OutOfTimeError(Exception):
    """The time limit of the run is over."""


class Clock(TrainingCallback):
    """Counts triples from the second batch on, and ends the run at its time limit."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.limit = time.perf_counter() + seconds
        self.begun: float | None = None
        self.ended = 0.0
        self.processor = (0.0, 0.0)
        self.triples = 0

    def post_batch(self, epoch: int, batch: Any, **kwargs: Any) -> None:
        """Called after the step of a batch."""
        now = time.perf_counter()
        if self.begun is None:
            self.begun = now
            self.processor = (time.process_time(), 0.0)
            return
        self.triples += len(batch["positives"])
        self.ended = now
        self.processor = (self.processor[0], time.process_time())
        if now > self.limit:
            raise OutOfTimeError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("triples")
    parser.add_argument("--model", choices=list(MODELS), required=True)
    parser.add_argument("--dim", type=int, default=100, help="numbers of an entity")
    parser.add_argument("--negatives", type=int, required=True)
    parser.add_argument("--batch-size", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    with np.load(options.triples) as stored:
        factory = CoreTriplesFactory(
            torch.from_numpy(stored["train"]),
            num_entities=int(stored["entities"]),
            num_relations=int(stored["relations"]),
        )
    shape = MODELS[options.model](options.dim)
    make = shape.pop("cls")
    softmax = InfoNCELoss(margin=0.0, log_adversarial_temperature=0.0)
    loss = NSSALoss(margin=9.0) if options.model == "rotate" else softmax
    model: Model = make(triples_factory=factory, loss=loss, random_seed=options.seed, **shape)
    clock = Clock(options.seconds)
    loop = SLCWATrainingLoop(
        model=model,
        triples_factory=factory,
        optimizer=torch.optim.Adagrad(model.get_grad_params(), lr=0.1),
        negative_sampler="basic",
        negative_sampler_kwargs={"num_negs_per_pos": options.negatives},
    )
    losses: list[float] = []
    with contextlib.suppress(OutOfTimeError):
        losses = loop.train(
            factory,
            num_epochs=options.epochs,
            batch_size=options.batch_size,
            callbacks=[clock],
            use_tqdm=False,
            pin_memory=False,
        )
    seconds = clock.ended - (clock.begun or 0.0)
    print(
        json.dumps(
            {
                "program": "pykeen",
                "triples": clock.triples,
                "seconds": seconds,
                "triples_per_second": clock.triples / seconds,
                "processor_seconds": clock.processor[1] - clock.processor[0],
                "losses": losses,
                "peak_resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            }
        )
    )


if __name__ == "__main__":
    main()
