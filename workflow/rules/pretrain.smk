# Never a part of the chain, which starts from the weights that ship in models/: ask for them by name.


rule pretrain_tiny:
    log:
        "logs/<model>/pretraining.log",
    pathvars:
        model="tiny",
    threads: 2
    resources:
        gpu=0,
        mem_mb=4000,
        runtime=240,
    params:
        job=BRIDGE.store.pretraining("tiny"),
    shell:
        "python workflow/scripts/pretrain.py {params.job} 2>&1 | tee {log}"


use rule pretrain_tiny as pretrain_tiny_t5 with:
    pathvars:
        model="tiny_t5",
    threads: 1
    params:
        job=BRIDGE.store.pretraining("tiny_t5"),
