"""Code that families of language models share: tokenizing, batches, scoring."""
