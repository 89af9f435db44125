# One result row a (plan, configuration) pair, whatever happens to it. A job is the batch of plans that `trace` wrote; inside
# it, rows whose provenance did not change are kept, so a job that has nothing new to do takes a second.
rule simulate:
    input:
        runs="<results>/{study}/design/runs_{batch}.json",
        traces="<results>/{study}/traces/batch_{batch}.json",
        configs="<results>/{study}/configs.json",
    output:
        rows="<results>/{study}/runs/batch_{batch}.jsonl",
    log:
        "<results>/{study}/logs/simulate_{batch}.log",
    benchmark:
        "<results>/{study}/benchmarks/simulate_{batch}.tsv"
    conda:
        "../envs/scaleacross.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=240,
    params:
        digest=lambda wildcards: FLOWS[wildcards.study].digests["simulate"],
        folder=lambda wildcards: FLOWS[wildcards.study].configs,
        binary=lambda wildcards: FLOWS[wildcards.study].astra_sim_option,
    shell:
        "scaleacross simulate {input.runs} --traces {input.traces} --configs {params.folder} {params.binary}"
        " --output {output.rows} > {log} 2>&1"
