# What would change the choice: at which bandwidth, latency, oversubscription or memory another design would win. The headline
# environment's optimum alone, on the embedded engine.
rule thresholds:
    input:
        table="<results>/{study}/results.csv",
        study="<results>/{study}/design/study.json",
        certificate=lambda wildcards: FLOWS[wildcards.study].certificate_files,
    output:
        found="<results>/{study}/thresholds.yaml",
    log:
        "<results>/{study}/logs/thresholds.log",
    benchmark:
        "<results>/{study}/benchmarks/thresholds.tsv"
    conda:
        "../envs/scaleacross.yaml"
    threads: workflow.cores
    resources:
        mem_mb=4000,
        runtime=60,
    params:
        digest=lambda wildcards: FLOWS[wildcards.study].digests["thresholds"],
        certificate=lambda wildcards, input: (
            f"--certificate {input.certificate}" if input.certificate else ""
        ),
    shell:
        "scaleacross thresholds {input.table} --study {input.study} {params.certificate}"
        " --cores {threads} --output {output.found} > {log} 2>&1"
