"""A runtime whose model says what a script says."""

from murmura.generation.writer import Completion


class Scripted:
    """``answer(prompt, adapter)`` gives the text, or a text and whether it was finished; every batch is noted,
    and how it was to be drawn."""

    def __init__(self, answer, context=None):
        self.answer, self.context = answer, context
        self.batches, self.drawn = [], []

    def prompt_ids(self, text):
        return list(text.encode())

    def write(self, adapters, prompts, limits, *, sampling, streams, stop, halt, nonempty, description):
        assert nonempty  # an empty draft is of no use
        texts = [bytes(ids).decode() for ids in prompts]
        self.drawn.append((sampling, streams))
        self.batches.append(list(zip(adapters, texts, limits, strict=True)))
        return [self._complete(text, adapter) for adapter, text in zip(adapters, texts, strict=True)]

    def _complete(self, prompt, adapter):
        said = self.answer(prompt, adapter)
        text, finished = said if isinstance(said, tuple) else (said, True)
        return Completion(text, [], finished)


def is_for_instruction(prompt):
    return prompt.startswith("Write a series")
