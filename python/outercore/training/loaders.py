"""The neighbour loaders of one run, which share a memory budget."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import ceil
from typing import TYPE_CHECKING, Any

from outercore.base.sizes import format_size, parse_size
from outercore.data.far import FarOptions, holds
from outercore.errors import BudgetError, DeviceError
from outercore.training.config import TrainConfig

if TYPE_CHECKING:
    from outercore.data.graph import Graph

LoaderFactory = Callable[..., Any]

_NAMED = object()
TABLE_COPIES = 13
"""Number of copies of a learned table in memory: 5 + 8. Training holds the weights, the gradient,
two moments of Adam and the best weights. While a checkpoint is written, there are two further
copies of all these except the gradient."""


def neighbor_loader(
    *arguments: Any, of_links: bool = False, arrays: Sequence[str] = (), **options: Any
) -> Any:
    """Makes an `outercore.NeighborLoader`, which is imported at the first call.

    With `of_links`, it makes an `outercore.LinkNeighborLoader`. A batch has only the further arrays
    in `arrays`. A run uses one process, so the loader takes all seeds, even in a process group.
    """
    options |= {"arrays": arrays, "rank": 0, "world_size": 1}
    if of_links:
        from outercore.loading.link_loader import LinkNeighborLoader

        loader: Any = LinkNeighborLoader(*arguments, **options)
    else:
        from outercore.loading.loader import NeighborLoader

        loader = NeighborLoader(*arguments, **options)
    # Tasks and models need features of shape [n, F] and classes of shape [n].
    loader.forms = {}
    return loader


class Loaders:
    """Opens the training loader and loaders for evaluation.

    They share the budget by `validation_share`, so the training caches stay filled during an
    evaluation. If the share is 0 or too small, training and evaluation take turns with the whole
    budget.
    """

    def __init__(
        self,
        graph: Graph,
        config: TrainConfig,
        *,
        features: Any = _NAMED,
        seeds: Mapping[str, Any] | None = None,
        reserved: Mapping[str, int] | None = None,
        advice: str = "give more memory by `--memory`",
        open_loader: LoaderFactory = neighbor_loader,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Divides the budget. No loader is opened yet.

        Args:
            graph: the graph to sample.
            config: the configuration of the run.
            features: features of batches; by default the features that `config` names.
            seeds: arguments of the training loader; by default it visits the training split.
            reserved: names and bytes of other data in memory.
            advice: hint if the reserved memory leaves nothing for batches.
            open_loader: makes the loaders.
            note: called with messages for the user.

        Errors: `BudgetError` if reserved memory takes the whole budget.
        """
        self._graph, self._config, self._seeds = graph, config, seeds
        self.features = config.sampling.features if features is _NAMED else features
        """The features that batches have as `x`."""
        self._open_loader, self._note = open_loader, note
        self._training: Any = None
        self.training_plan: dict[str, Any] = {}
        """The memory plan of the last training loader."""
        self._share = config.budget.validation_share
        self._far = config.budget.far
        self._far_answered = False
        total = parse_size(config.budget.memory)
        self._reserved = dict(reserved or {})
        taken = sum(self._reserved.values())
        if taken >= total:
            raise BudgetError(
                f"memory budget {format_size(total)}: {self._named()} leave nothing for batches\n"
                f"hint: {advice}",
                needed=taken,
            )
        self._total = total - taken

    @property
    def evaluation_memory(self) -> int:
        """The bytes for an evaluation loader."""
        return int(self._total * self._share) if self._share else self._total

    @property
    def training_memory(self) -> int:
        """The bytes for the training loader."""
        return self._total - int(self._total * self._share)

    @property
    def shares(self) -> dict[str, int]:
        """The division of the budget into loaders and reserved memory, in bytes."""
        reserved = {
            f"{re.sub('[ -]', '_', name)}_memory": size for name, size in self._reserved.items()
        }
        return {
            "memory": self._total + sum(self._reserved.values()),
            **reserved,
            "validation_memory": int(self._total * self._share),
        }

    def all_rows_memory(self) -> int | None:
        """A budget with which all feature rows stay in memory; `None` if it is not known."""
        needed = self.training_plan.get("all_rows")
        if needed is None:
            return None
        # The share for validation is rounded down.
        share = ceil((needed + 1) / (1 - self._config.budget.validation_share))
        return share + sum(self._reserved.values())

    def training(self) -> Any:
        """The training loader. The first call opens it.

        Errors: `BudgetError` if even the whole budget is too small.
        """
        while self._training is None:
            try:
                self._training = self._open_training()
                self.training_plan = self._training.plan()
            except BudgetError as error:
                if not self.use_whole_budget():
                    raise self.beside(error) from None
        return self._training

    @contextmanager
    def evaluation(self, **arguments: Any) -> Iterator[Any]:
        """Context with a loader that does not shuffle. It is closed at the end of the block."""
        if not self._share:
            self._close_training()
        # A row is needed about as often as its node has out-neighbours. Sampling an epoch to count
        # this would cost as much as the pass itself.
        loader = self._open(
            memory=self.evaluation_memory,
            hotness="in_degree",
            far=self._evaluation_far(),
            **arguments,
        )
        try:
            yield loader
        finally:
            loader.close()

    def inference_memory(self) -> int:
        """The bytes for an inference without a loader. If needed, closes the training loader."""
        if not self._share:
            self._close_training()
        return self.evaluation_memory

    def beside(self, error: BudgetError) -> BudgetError:
        """Adds the reserved memory to a loader's error about its part of the budget."""
        taken = sum(self._reserved.values())
        if not taken:
            return error
        needed = None if error.needed is None else error.needed + taken
        besides = f"\nhint: {self._named()} are in memory besides"
        return BudgetError(*error.parts, besides, needed=needed)

    def use_whole_budget(self) -> bool:
        """From now on, lets training and evaluation take turns with the whole budget.

        Closes the training loader. Returns false if they take turns already.
        """
        if not self._share:
            return False
        self._note(
            "the budget is too small to validate while the training caches are filled: "
            "they are emptied for each validation and filled again"
        )
        self.release_training()
        return True

    def release_training(self) -> None:
        """Closes the training loader and leaves the whole budget to evaluation."""
        self._share = 0.0
        self._close_training()

    def close(self) -> None:
        """Closes the training loader, if open."""
        self._close_training()

    def fanout(self) -> list[int]:
        """The fan-outs of the hops; no hops for a network that uses no edges."""
        if self._config.model.kind == "mlp":
            return []
        return list(self._config.sampling.fanout)

    def _open_training(self) -> Any:
        sampling = self._config.sampling
        seeds = self._seeds or {
            "num_neighbors": self.fanout(),
            "input_nodes": sampling.train,
            "batch_size": sampling.seeds,
            "replace": sampling.replace,
            "features": self.features,
            "labels": sampling.labels,
            "hotness": self._config.budget.hotness,
        }
        return self._open(memory=self.training_memory, shuffle=True, far=self._far, **seeds)

    def _evaluation_far(self) -> FarOptions | None:
        """The memory server, if it holds the data set permanently; else `None`.

        An evaluation reads most data only once, so a copy to the server would only cost time.
        """
        if self._far is None or not holds(self._graph.root, self._far):
            return None
        self._far_answered = True
        return self._far

    def _open(self, *, far: FarOptions | None, **arguments: Any) -> Any:
        """Opens a loader. If a memory server has answered before and fails now, uses the disk.

        A server that has never answered is an error, because its address may be wrong.
        """
        try:
            loader = self._open_planned(far=far, **arguments)
        except DeviceError as error:
            if far is None or not far.fallback or not self._far_answered:
                raise
            loader = self._open_planned(far=None, **arguments)
            self._far = None
            why = str(error).splitlines()[0]
            self._note(f"{why}: from now on everything is read from the disk")
        else:
            self._far_answered = self._far_answered or far is not None
        return loader

    def _open_planned(self, **arguments: Any) -> Any:
        budget = self._config.budget
        loader = self._open_loader(
            self._graph,
            seed=self._config.run.seed,
            backend=budget.backend,
            threads=budget.threads,
            topology=budget.topology,
            policy=budget.policy,
            precision=self._config.sampling.precision,
            edge_ids=False,
            **self._of_times(),
            **arguments,
        )
        try:
            # Plan now, because only the plan shows whether the budget is sufficient.
            loader.plan()
        except BaseException:
            loader.close()
            raise
        return loader

    def _of_times(self) -> dict[str, Any]:
        """The arguments of a loader for times: a node samples its latest earlier neighbours."""
        attribute = self._config.sampling.time
        if attribute is None:
            return {}
        return {"time_attr": attribute, "temporal_strategy": "last"}

    def _named(self) -> str:
        reserved = self._reserved.items()
        return ", ".join(f"{name} of {format_size(size)}" for name, size in reserved if size)

    def _close_training(self) -> None:
        if self._training is not None:
            self._training.close()
            self._training = None
