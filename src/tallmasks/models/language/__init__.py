"""What families of language models share: tokens and batches of them, scoring of answers, keys of params.yaml."""
