# Chakra traces, once a plan whatever the number of networks it meets. A job is a batch of plans.
rule trace:
    input:
        plans="<results>/{study}/design/plans_{batch}.json",
    output:
        manifest="<results>/{study}/traces/batch_{batch}.json",
    log:
        "<results>/{study}/logs/trace_{batch}.log",
    benchmark:
        "<results>/{study}/benchmarks/trace_{batch}.tsv"
    conda:
        "../envs/scaleacross.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=60,
    params:
        digest=lambda wildcards: FLOWS[wildcards.study].digests["trace"],
    shell:
        "scaleacross trace {input.plans} --output {output.manifest} > {log} 2>&1"
