# ASTRA-sim configurations, one folder each, that the ASTRA-sim binary takes as they are.
rule render:
    input:
        configs="<results>/{study}/design/configs.json",
    output:
        manifest="<results>/{study}/configs.json",
    log:
        "<results>/{study}/logs/render.log",
    benchmark:
        "<results>/{study}/benchmarks/render.tsv"
    conda:
        "../envs/scaleacross.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=30,
    params:
        digest=lambda wildcards: FLOWS[wildcards.study].digests["render"],
        folder=lambda wildcards: FLOWS[wildcards.study].configs,
    shell:
        "scaleacross render {input.configs} --folder {params.folder} --output {output.manifest} > {log} 2>&1"
