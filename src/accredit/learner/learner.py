"""Takes gradient steps and owns weights, optimizer and schedule.

Weights are float32 masters; on CUDA the backbone runs in bfloat16 and the log-softmax
in float32. What an update does step by step is `policy_update`.

Knows no algorithm: what is minimised is the `Objective` it is given.
"""

import json
import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import GenerationConfig, PreTrainedModel

from accredit.learner.options import LearnerOptions
from accredit.learner.policy_update import Counters, PolicyUpdateSteps, StepTools
from accredit.models.descent import Descent
from accredit.models.finite import require_loadable, require_savable
from accredit.models.forward import read, without_dropout
from accredit.models.optimizer import adamw, load_optimizer, save_optimizer
from accredit.models.probe import is_due
from accredit.models.scorer import Scorer
from accredit.protocols import Objective
from accredit.storage.folders import MODEL_FOLDER
from accredit.storage.state_json import read_counts
from accredit.types import Batch

OPTIMIZER_FILE = "optimizer.safetensors"
LEARNER_FILE = "learner.json"
SCHEMA = 2


class Learner:
    """The policy's learner on one device."""

    def __init__(
        self,
        model: PreTrainedModel,
        options: LearnerOptions,
        reference: Callable[[], PreTrainedModel] | None = None,
    ) -> None:
        """Takes the model over; `reference` loads the frozen one when it is needed.

        The reference is the model the run began with, also after a resume.
        """
        self.model = savable(without_dropout(model.float()))
        self.options = options
        self._reading = read(self.model)
        self.watch: Callable[[int, int], None] | None = None
        """Told of micro-batches done and to do of an optimizer step, before each."""
        self._counters = Counters()
        self._scorer = Scorer(
            self.model,
            self._reading.scoring,
            options.micro_batch_tokens,
            options.temperature,
        )
        if options.gradient_checkpointing:
            self.model.gradient_checkpointing_enable({"use_reentrant": False})
        self._optimizer = adamw(self.model, options.optimizer)
        self._descent = Descent(
            self._optimizer,
            [p for p in self.model.parameters() if p.requires_grad],
            max_gradient_norm=options.max_gradient_norm,
            max_consecutive_skips=options.max_consecutive_skips,
            owner="the policy",
        )
        self._load_reference = reference
        self._reference: Scorer | None = None

    @property
    def version(self) -> int:
        """Of the weights: rises with every step that moves them."""
        return self._counters.version

    @property
    def num_updates(self) -> int:
        """Finished updates."""
        return self._counters.num_updates

    @property
    def num_consecutive_skips(self) -> int:
        """Optimizer steps in a row that were left out as not finite."""
        return self._descent.num_consecutive_skips

    @property
    def notes(self) -> tuple[str, ...]:
        """What is slower than it could be about the model, one line each."""
        return self._reading.notes

    def logprobs(self, batch: Batch) -> Float[Tensor, "rollout token"]:
        """Current log-probs of every sampled token, 0 elsewhere; no gradient."""
        return self._scorer.logprobs(batch)

    def reference_logprobs(self, batch: Batch) -> Float[Tensor, "rollout token"]:
        """The frozen model's log-probs of every sampled token, 0 elsewhere."""
        return self._frozen().logprobs(batch)

    def entropies(self, batch: Batch) -> Float[Tensor, "rollout token"]:
        """Current entropies in nats at every sampled token, 0 elsewhere; no gradient.

        Of the distribution at the sampling temperature that the token is drawn from.
        """
        return self._scorer.entropies(batch)

    def begin(
        self,
        batch: Batch,
        advantages: Tensor,
        objective: Objective,
        seed: int,
        *,
        measures_displacement: bool = False,
    ) -> PolicyUpdateSteps:
        """An update of the policy, whose steps the caller takes; moves nothing yet.

        See `policy_update`. One update at a time: the learning rate is set here.

        Raises:
            ValueError: The advantages or the objective do not fit the batch.
        """
        learning_rate = self.options.schedule.rate(self._counters.num_updates)
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        tools = StepTools(
            self._scorer,
            self._frozen,
            self._descent,
            self.options.micro_batch_tokens,
            num_forwards=2 if self.options.gradient_checkpointing else 1,
            counters=self._counters,
            finish=self._finish,
            watch=self.watch,
        )
        return PolicyUpdateSteps(
            tools,
            batch,
            advantages,
            objective,
            seed,
            learning_rate=learning_rate,
            measures_displacement=measures_displacement,
        )

    def moved_by_others(self, num_steps: int) -> None:
        """Counts steps that a critic on the policy's own weights has taken."""
        self._counters.version += num_steps

    def save(self, folder: Path) -> None:
        """Writes `model/` (a plain Hugging Face directory), optimizer and counters.

        Raises:
            RuntimeError: A weight or a moment is not finite; nothing is written.
        """
        require_savable("the policy", self.model.state_dict().items())
        folder.mkdir(parents=True, exist_ok=True)
        save_optimizer(
            folder / OPTIMIZER_FILE, self._optimizer, self.model, "the policy"
        )
        self.model.save_pretrained(folder / MODEL_FOLDER)
        counters = {
            "schema": SCHEMA,
            **asdict(self._counters),
            "num_consecutive_skips": self.num_consecutive_skips,
        }
        (folder / LEARNER_FILE).write_text(json.dumps(counters), encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Continues exactly where `save` was called.

        Raises:
            ValueError: The folder is another model's, or another version's.
        """
        names = ("version", "num_updates", "num_consecutive_skips")
        counters = read_counts(folder / LEARNER_FILE, SCHEMA, names)
        weights = saved_weights(type(self.model), folder)
        require_loadable(str(folder), weights.items())
        self.model.load_state_dict(weights)
        load_optimizer(folder / OPTIMIZER_FILE, self._optimizer, self.model)
        self._counters.version = counters["version"]
        self._counters.num_updates = counters["num_updates"]
        self._descent.num_consecutive_skips = counters["num_consecutive_skips"]
        self._reading = self._reading.and_now(self.model)
        self._scorer = replace(self._scorer, scoring=self._reading.scoring)

    def _finish(self) -> tuple[str, ...]:
        """Ends an update; what is to be said of the model since then.

        A short way of scoring that the first updates have shown to be wrong is taken
        back.
        """
        self._counters.num_updates += 1
        known = self.notes
        if is_due(self.num_updates):
            self._reading = self._reading.and_now(self.model)
            self._scorer = replace(self._scorer, scoring=self._reading.scoring)
        return tuple(line for line in self.notes if line not in known)

    def _frozen(self) -> Scorer:
        """The reference model's, loaded when it is first asked for."""
        if self._reference is None:
            if self._load_reference is None:
                raise ValueError(
                    "a KL term needs a reference model, got a learner without one; "
                    "give Learner a `reference` that loads it"
                )
            reference = without_dropout(self._load_reference().float())
            if reference is self.model:
                raise ValueError(
                    "the reference must be a model of its own, got the policy itself"
                )
            nn.Module.to(reference, self.model.device)
            frozen = reference.eval().requires_grad_(False)
            self._reference = replace(self._scorer, model=frozen)
        return self._reference


def savable(model: PreTrainedModel) -> PreTrainedModel:
    """The same model with a generation config that transformers agrees to write.

    It reads sampling settings beside greedy decoding, and refuses to save them: a run
    would end at its first checkpoint. What stays is which tokens start, stop and pad.
    """
    config = model.generation_config
    if config is None:
        return model
    try:
        config.validate(strict=True)
    except ValueError as error:
        warnings.warn(
            "generation_config.json must be valid to be saved again, got "
            f"{error}; checkpoints keep its token ids only",
            stacklevel=3,
        )
        model.generation_config = GenerationConfig(
            bos_token_id=config.bos_token_id,
            eos_token_id=config.eos_token_id,
            pad_token_id=config.pad_token_id,
        )
    return model


def saved_weights(kind: type[PreTrainedModel], folder: Path) -> dict[str, Tensor]:
    """The weights that `Learner.save` wrote, as this kind of model names them."""
    message = "a checkpoint must be of the model of the run"
    try:
        loaded: Any = kind.from_pretrained(
            folder / MODEL_FOLDER,
            dtype=torch.float32,
            use_safetensors=True,
            output_loading_info=True,
        )
    except (RuntimeError, OSError, SafetensorError) as error:
        raise ValueError(f"{message}, got {error}") from error
    model, report = loaded
    strangers = sorted({*report["missing_keys"], *report["unexpected_keys"]})
    if strangers:
        raise ValueError(f"{message}, got weights that differ by {strangers}")
    return model.state_dict()
