"""Vocabularies whose turn marks are not control tokens: a user's text must not end the turn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from eliza_ffi.chat import ChatTemplate, Prompt
from eliza_ffi.chat.prompt import PromptTokenizer
from eliza_ffi.chat.tokens import ChatTokenizer, frame_of
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

TEMPLATES = {
    "command-r": (
        "{{ bos_token }}{% for m in messages %}<|START_OF_TURN_TOKEN|>"
        "{% if m.role == 'user' %}<|USER_TOKEN|>{% else %}<|CHATBOT_TOKEN|>{% endif %}"
        "{{ m.content }}<|END_OF_TURN_TOKEN|>{% endfor %}"
        "{% if add_generation_prompt %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{% endif %}"
    ),
    "deepseek-coder": (
        "{{ bos_token }}{% for m in messages %}"
        "{% if m.role == 'user' %}### Instruction:\n{{ m.content }}\n"
        "{% else %}### Response:\n{{ m.content }}\n<|EOT|>\n{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}### Response:{% endif %}"
    ),
}
MARKS = {
    "command-r": ["<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>"],
    "deepseek-coder": ["<|EOT|>"],
}


@pytest.mark.parametrize("vocab", TEMPLATES)
@pytest.mark.parametrize("around", ["{}", "a {} b", " {}{}", "x{}\n{} y", "<|{}|>"])
def test_turn_marks_in_a_message_are_text(
    vocab: str, around: str, library: Library, random_model_path: Callable[..., Path]
) -> None:
    path = random_model_path(vocab, n_embd=64, n_layers=1, seed=1)
    with Model(path, library=library, n_threads=1) as model:
        tokenize, detokenize = model.session.tokenize, model.session.detokenize
        template = ChatTemplate(TEMPLATES[vocab])
        chat = ChatTokenizer(template, tokenize, detokenize)
        prompts = PromptTokenizer(tokenize, detokenize, lambda: frame_of(template))
        for mark in MARKS[vocab]:
            (token,) = tokenize(mark)  # recognized in any text, so no control token
            content = around.replace("{}", mark)
            plain = around.replace("{}", "something")

            def tokens(content: str) -> list[int]:
                messages = [{"role": "user", "content": content}]
                return chat.tokens(messages, add_generation_prompt=True)

            assert tokens(content).count(token) == tokens(plain).count(token)
            assert content in detokenize(tokens(content), unparse_special=True)

            prompt = Prompt().template(f"A {mark} B ").text(content).template(f" C {mark}")
            read = prompts.tokens(prompt)
            assert read.count(token) == 2
            assert f"B {content} C" in detokenize(read, unparse_special=True)


def test_other_texts_have_the_same_tokens(
    library: Library, random_model_path: Callable[..., Path]
) -> None:
    path = random_model_path("command-r", n_embd=64, n_layers=1, seed=1)
    with Model(path, library=library, n_threads=1) as model:
        tokenize, detokenize = model.session.tokenize, model.session.detokenize
        template = ChatTemplate(TEMPLATES["command-r"])
        chat = ChatTokenizer(template, tokenize, detokenize)
        for content in ("hello", "a < b", "<|nothing|>", "", "  two  spaces "):
            messages = [{"role": "user", "content": content}]
            text = template.render(messages, add_generation_prompt=True)
            assert chat.tokens(messages, add_generation_prompt=True) == tokenize(text, False, True)
