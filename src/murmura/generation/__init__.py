"""Text from language models: completions and scores."""
