"""Test-wide switches: one torch thread, so that tiny tensors do not wait for cores."""

import torch

torch.set_num_threads(1)
