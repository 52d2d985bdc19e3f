# Never a part of the chain, which starts from the weights that ship in models/: ask for them by name.


rule pretrain_tiny:
    log:
        "logs/<model>/pretraining.log",
    benchmark:
        "logs/<model>/pretraining.benchmark.tsv"
    pathvars:
        model="tiny",
    threads: 2
    resources:
        gpu=0,
        mem_mb=4000,
        runtime=240,
    params:
        command=BRIDGE.store.pretraining("tiny"),
    message:
        "Pretrain the tiny model from nothing; progress is in {log}"
    shell:
        "{params.command} 2>&1 | tee {log}"


use rule pretrain_tiny as pretrain_tiny_t5 with:
    pathvars:
        model="tiny_t5",
    threads: 1
    params:
        command=BRIDGE.store.pretraining("tiny_t5"),
    message:
        "Pretrain the tiny T5 from nothing; progress is in {log}"
