# What a person reads, and the last word: does the share of failed points exceed what the study allows?
rule report:
    input:
        table="<results>/{study}/results.csv",
        optimum="<results>/{study}/optimum.yaml",
        speedups="<results>/{study}/speedups.csv",
        interplay="<results>/{study}/interplay.csv",
        study="<results>/{study}/design/study.json",
        provenance="<results>/{study}/provenance.yaml",
    output:
        html="<results>/{study}/report.html",
    log:
        "<results>/{study}/logs/report.log",
    benchmark:
        "<results>/{study}/benchmarks/report.tsv"
    conda:
        "../envs/scaleacross.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        digest=lambda wildcards: FLOWS[wildcards.study].digests["report"],
    shell:
        "scaleacross report {input.study} --output {output.html} > {log} 2>&1"


rule verdict:
    input:
        table="<results>/{study}/results.csv",
        study="<results>/{study}/design/study.json",
        report="<results>/{study}/report.html",
    output:
        text="<results>/{study}/verdict.txt",
    log:
        "<results>/{study}/logs/verdict.log",
    benchmark:
        "<results>/{study}/benchmarks/verdict.tsv"
    conda:
        "../envs/scaleacross.yaml"
    threads: 1
    resources:
        mem_mb=500,
        runtime=10,
    params:
        digest=lambda wildcards: FLOWS[wildcards.study].digests["verdict"],
    shell:
        "scaleacross verdict {input.table} --study {input.study} --output {output.text} > {log} 2>&1"
