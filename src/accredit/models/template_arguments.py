"""What a chat template reads besides the messages, given whenever it is applied."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any


def give_template_arguments(
    tokenizer: Any, arguments: Mapping[str, Any], chat: str = "auto"
) -> None:
    """From here on the tokenizer's chat template is given `arguments`, whoever asks.

    The prompts of the policy, of its critics and of its teacher go through the one
    tokenizer of the policy, so that none can be left out. What is saved of it stays as
    it was.

    Args:
        tokenizer: Of the policy.
        arguments: Values by name.
        chat: The recipe's; "plain" applies no template.

    Raises:
        ValueError: no template is applied, or it does not read an argument.
    """
    if not arguments:
        return
    key = "sampling.template_arguments"
    if chat == "plain" or not tokenizer.chat_template:
        raise ValueError(
            f"{key} goes with a chat template, got "
            f"{'chat = plain' if chat == 'plain' else 'a tokenizer without one'}; "
            "leave it out"
        )
    text = tokenizer.get_chat_template()
    for name in arguments:
        if not re.search(rf"\b{re.escape(name)}\b", text):
            raise ValueError(
                f"{key} must name what the model's chat template reads, got {name!r}, "
                "which it does not mention; correct the name"
            )
    tokenizer.apply_chat_template = partial(tokenizer.apply_chat_template, **arguments)
