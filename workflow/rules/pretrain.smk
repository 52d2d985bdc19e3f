# Never a part of the chain, which starts from the weights that ship in models/: ask for them by name.


rule pretrain_tiny:
    log:
        "logs/tiny/pretraining.log",
    benchmark:
        "logs/tiny/pretraining.benchmark.tsv"
    threads: 2
    resources:
        gpu=0,
        mem_mb=4000,
        runtime=240,
    params:
        command=BRIDGE.store.pretraining("tiny", "pretrain_tiny"),
    message:
        "Pretrain the tiny model from nothing; progress is in {log}"
    shell:
        "{params.command} 2>&1 | tee {log}"


rule pretrain_tiny_t5:
    log:
        "logs/tiny_t5/pretraining.log",
    benchmark:
        "logs/tiny_t5/pretraining.benchmark.tsv"
    threads: 1
    resources:
        gpu=0,
        mem_mb=4000,
        runtime=240,
    params:
        command=BRIDGE.store.pretraining("tiny_t5", "pretrain_tiny_t5"),
    message:
        "Pretrain the tiny T5 from nothing; progress is in {log}"
    shell:
        "{params.command} 2>&1 | tee {log}"
