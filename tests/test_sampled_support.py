"""Ratios between engine and learner are taken over one support."""

import math

import pytest
import torch

from accredit.engines.local.engine import TransformersEngine
from accredit.recipe.config import RecipeError, recipe_from
from accredit.types import Request, Sampling

CUT = [{"top_p": 0.9}, {"top_k": 20}, {"top_p": 0.999, "top_k": 1}]
READS = [
    {"name": "sao"},
    {"name": "pact"},
    {"name": "grpo", "engine_correction": "truncated_importance"},
    {"name": "gspo", "engine_correction": "sequence_truncated_importance"},
    {"name": "rloo", "engine_correction": "geometric_truncated_importance"},
    {"name": "ac2", "engine_correction": "truncated_importance"},
    {"name": "opd", "engine_correction": "truncated_importance", "teacher": "packaged"},
]
OWN = [
    {"name": "grpo"},
    {"name": "gspo"},
    {"name": "dapo"},
    {"name": "ppo"},
    {"name": "pact", "engine_correction": "none"},
]


def recipe(algorithm, sampling, **more):
    return recipe_from({"algorithm": algorithm, "sampling": sampling, **more}, "test")


@pytest.mark.parametrize("cut", CUT, ids=str)
@pytest.mark.parametrize("algorithm", READS, ids=str)
def test_a_cut_support_is_refused_where_ratios_are_taken_to_the_engine(algorithm, cut):
    with pytest.raises(RecipeError, match=r"top_p must be 1 and sampling\.top_k 0 whe"):
        recipe(algorithm, cut)
    assert recipe(algorithm, {}).algorithm.reads_engine


@pytest.mark.parametrize("cut", CUT, ids=str)
@pytest.mark.parametrize("algorithm", OWN, ids=str)
def test_it_may_be_cut_where_ratios_are_the_learners_own(algorithm, cut):
    assert not recipe(algorithm, cut).algorithm.reads_engine


@pytest.mark.parametrize("cut", CUT, ids=str)
def test_evaluations_may_cut_it(cut):
    assert recipe({"name": "sao"}, {}, evaluation=cut).evaluation.samples


def test_what_is_refused_would_be_off_by_the_mass_that_was_cut():
    """At equal weights the ratio learner / engine is 1 without a cut; with one it is
    the mass that was kept."""
    from accredit.models.loading import PACKAGED, load_model

    model = load_model(PACKAGED, torch.float32, "cpu").model
    (whole,) = TransformersEngine(model, ()).generate(
        [Request((1, 2, 3), 6, 0)], Sampling()
    )
    (cut,) = TransformersEngine(model, ()).generate(
        [Request((1, 2, 3), 6, 0)], Sampling(top_k=2)
    )
    for found, least in ((whole, 1.0), (cut, 0.0)):
        ids = torch.tensor([(1, 2, 3, *found.token_ids)])
        with torch.no_grad():
            logprobs = model(input_ids=ids).logits[0].log_softmax(-1)
        for t, (token, engine) in enumerate(
            zip(found.token_ids, found.logprobs, strict=True), start=2
        ):
            ratio = math.exp(float(logprobs[t, token]) - engine)
            kept = float(logprobs[t].exp().topk(2).values.sum())
            expected = 1.0 if least else kept
            assert ratio == pytest.approx(expected, rel=1e-3)
