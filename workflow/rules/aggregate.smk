# One table with a row for every point, the infeasible ones included, and what it was made from.
rule aggregate:
    input:
        points=lambda wildcards: FLOWS[wildcards.study].points_file,
        study="<results>/{study}/design/study.json",
        rows=lambda wildcards: FLOWS[wildcards.study].row_files,
    output:
        table="<results>/{study}/results.csv",
        provenance="<results>/{study}/provenance.yaml",
    log:
        "<results>/{study}/logs/aggregate.log",
    benchmark:
        "<results>/{study}/benchmarks/aggregate.tsv"
    conda:
        "../envs/scaleacross.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        digest=lambda wildcards: FLOWS[wildcards.study].digests["aggregate"],
    shell:
        "scaleacross aggregate {input.rows} --points {input.points} --study {input.study}"
        " --output {output.table} --provenance {output.provenance} > {log} 2>&1"
