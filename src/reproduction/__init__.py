"""The reproduction of the paper: params.yaml, its tasks and models, training, evaluation, tables and figures."""
